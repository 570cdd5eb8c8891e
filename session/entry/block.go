package entry

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tidwall/gjson"
)

// Types of content blocks.
const (
	BlockText                = "text"
	BlockImage               = "image"
	BlockThinking            = "thinking"
	BlockRedactedThinking    = "redactedThinking"
	BlockToolCall            = "toolCall"
	BlockFallback            = "fallback"
	BlockAnthropicServerTool = "anthropicServerTool"
)

// Block is one piece of a message's content: one of the structs below, by value.
type Block interface {
	// BlockType returns the value of the block's "type" member.
	BlockType() string
}

// TextBlock is text.
type TextBlock struct {
	Text      string `json:"text"`
	Signature string `json:"textSignature,omitempty"`
}

// ImageBlock is an image. Data is base64, or a reference into the blob store when
// the block was read from a log and its image has not been put back.
type ImageBlock struct {
	Data         string          `json:"data"`
	MIMEType     string          `json:"mimeType"`
	Detail       string          `json:"detail,omitempty"`
	URL          string          `json:"url,omitempty"`
	ProviderFile json.RawMessage `json:"providerFile,omitempty"`
}

// ThinkingBlock is reasoning that the provider shows. With a signature it must go
// back to the provider unchanged.
type ThinkingBlock struct {
	Thinking  string `json:"thinking"`
	Signature string `json:"thinkingSignature,omitempty"`
	ItemID    string `json:"itemId,omitempty"`
}

// RedactedThinkingBlock is reasoning that only the provider can read.
type RedactedThinkingBlock struct {
	Data string `json:"data"`
}

// ToolCallBlock is a call that the model wants made.
type ToolCallBlock struct {
	ID               string          `json:"id"`
	Name             string          `json:"name"`
	Arguments        json.RawMessage `json:"arguments"` // an object; nil is written as {}
	ThoughtSignature string          `json:"thoughtSignature,omitempty"`
	Intent           string          `json:"intent,omitempty"`
	RawBlock         json.RawMessage `json:"rawBlock,omitempty"`
	CustomWireName   string          `json:"customWireName,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"`
}

// FallbackBlock marks where the provider went on with another model.
type FallbackBlock struct {
	From json.RawMessage `json:"from,omitempty"`
	To   json.RawMessage `json:"to,omitempty"`
}

// AnthropicServerToolBlock is a block of a tool that runs at the provider, kept as
// the provider sent it.
type AnthropicServerToolBlock struct {
	Block json.RawMessage `json:"block"`
}

// UnknownBlock is a block of any other type, kept as it is.
type UnknownBlock struct {
	Type string
	Raw  json.RawMessage // the whole block
}

// BlockType implements [Block], here and on each of the types below.
func (TextBlock) BlockType() string                { return BlockText }
func (ImageBlock) BlockType() string               { return BlockImage }
func (ThinkingBlock) BlockType() string            { return BlockThinking }
func (RedactedThinkingBlock) BlockType() string    { return BlockRedactedThinking }
func (ToolCallBlock) BlockType() string            { return BlockToolCall }
func (FallbackBlock) BlockType() string            { return BlockFallback }
func (AnthropicServerToolBlock) BlockType() string { return BlockAnthropicServerTool }
func (b UnknownBlock) BlockType() string           { return b.Type }

// blockTag is the member that the block structs leave to their marshalers.
type blockTag struct {
	Type string `json:"type"`
}

// MarshalJSON implements [json.Marshaler], here and on each of the types below: a
// block's first member is its type.
func (b TextBlock) MarshalJSON() ([]byte, error) {
	type fields TextBlock
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockText}, fields(b)})
}

func (b ImageBlock) MarshalJSON() ([]byte, error) {
	type fields ImageBlock
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockImage}, fields(b)})
}

func (b ThinkingBlock) MarshalJSON() ([]byte, error) {
	type fields ThinkingBlock
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockThinking}, fields(b)})
}

func (b RedactedThinkingBlock) MarshalJSON() ([]byte, error) {
	type fields RedactedThinkingBlock
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockRedactedThinking}, fields(b)})
}

func (b ToolCallBlock) MarshalJSON() ([]byte, error) {
	type fields ToolCallBlock
	if b.Arguments == nil {
		b.Arguments = json.RawMessage("{}")
	}
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockToolCall}, fields(b)})
}

func (b FallbackBlock) MarshalJSON() ([]byte, error) {
	type fields FallbackBlock
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockFallback}, fields(b)})
}

func (b AnthropicServerToolBlock) MarshalJSON() ([]byte, error) {
	type fields AnthropicServerToolBlock
	return marshal(struct {
		blockTag
		fields
	}{blockTag{BlockAnthropicServerTool}, fields(b)})
}

func (b UnknownBlock) MarshalJSON() ([]byte, error) {
	if b.Raw == nil {
		return marshal(blockTag{b.Type})
	}
	return b.Raw, nil
}

// DecodeBlock decodes one content block. A block of an unknown type, or one that
// has none, becomes an [UnknownBlock].
func DecodeBlock(raw []byte) (Block, error) {
	switch typ := str(gjson.Get(text(raw), "type")); typ {
	case BlockText:
		return decodeBlock[TextBlock](raw)
	case BlockImage:
		return decodeBlock[ImageBlock](raw)
	case BlockThinking:
		return decodeBlock[ThinkingBlock](raw)
	case BlockRedactedThinking:
		return decodeBlock[RedactedThinkingBlock](raw)
	case BlockToolCall:
		return decodeBlock[ToolCallBlock](raw)
	case BlockFallback:
		return decodeBlock[FallbackBlock](raw)
	case BlockAnthropicServerTool:
		return decodeBlock[AnthropicServerToolBlock](raw)
	default:
		if !json.Valid(raw) {
			return nil, errors.New("decoding a content block: not valid JSON")
		}
		return UnknownBlock{Type: typ, Raw: append(json.RawMessage(nil), raw...)}, nil
	}
}

func decodeBlock[T Block](raw []byte) (Block, error) {
	var b T
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("decoding a %s block: %w", b.BlockType(), err)
	}
	return b, nil
}
