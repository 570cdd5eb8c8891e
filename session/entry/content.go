package entry

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Content is what a message says: one string, or a list of blocks. It keeps the
// form it was read in or made with. The zero Content is an empty list.
type Content struct {
	blocks []Block
	plain  bool // written as a string; blocks is then one TextBlock
}

// PlainText returns content that is written as a string.
func PlainText(s string) Content {
	return Content{blocks: []Block{TextBlock{Text: s}}, plain: true}
}

// Blocks returns content that is written as a list.
func Blocks(blocks ...Block) Content { return Content{blocks: blocks} }

// IsPlain reports whether the content is one string.
func (c Content) IsPlain() bool { return c.plain }

// Blocks returns the blocks of the content; a string is one [TextBlock]. Callers
// must not modify the slice.
func (c Content) Blocks() []Block { return c.blocks }

// Text returns the text blocks, joined by newlines.
func (c Content) Text() string {
	if c.plain && len(c.blocks) == 1 {
		if b, ok := c.blocks[0].(TextBlock); ok {
			return b.Text
		}
	}
	var texts []string
	for _, b := range c.blocks {
		if b, ok := b.(TextBlock); ok {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// ToolCalls returns the tool calls in the content, in order.
func (c Content) ToolCalls() []ToolCallBlock {
	var calls []ToolCallBlock
	for _, b := range c.blocks {
		if b, ok := b.(ToolCallBlock); ok {
			calls = append(calls, b)
		}
	}
	return calls
}

// MarshalJSON implements [json.Marshaler].
func (c Content) MarshalJSON() ([]byte, error) {
	if c.plain {
		return marshal(c.Text())
	}
	if c.blocks == nil {
		return []byte("[]"), nil
	}
	return marshal(c.blocks)
}

// UnmarshalJSON implements [json.Unmarshaler]. A null is an empty list, as
// programs treat it.
func (c *Content) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		*c = PlainText(s)
		return nil
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(b, &raws); err != nil {
		return fmt.Errorf("content is neither a string nor a list: %w", err)
	}
	blocks := make([]Block, len(raws))
	for i, raw := range raws {
		block, err := DecodeBlock(raw)
		if err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
		blocks[i] = block
	}
	*c = Content{blocks: blocks}
	return nil
}
