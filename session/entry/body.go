package entry

import (
	"encoding/json"
	"fmt"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Body is what an entry says, without its envelope. The bodies of this package are
// plain structs, one for each type of the format, and [Raw] for the rest; every
// [Message] is a body too, so a message can be appended as it is.
type Body interface {
	// EntryType returns the value of the line's "type" member.
	EntryType() string
}

// MessageBody is the body of a message entry whose message is JSON already. It is
// the cheapest way to append a message, and the only one that keeps members which
// the message types lack.
type MessageBody struct {
	Message json.RawMessage `json:"message"`
}

// ModelUsage records a model call that is no part of the conversation, such as the
// one that found the title.
type ModelUsage struct {
	Purpose      string `json:"purpose"`
	Role         string `json:"role,omitempty"` // of the model, such as "tiny"
	API          string `json:"api"`
	Provider     string `json:"provider"`
	Model        string `json:"model"`
	Usage        Usage  `json:"usage"`
	StopReason   string `json:"stopReason"`
	ErrorMessage string `json:"errorMessage,omitempty"`
}

// ThinkingLevelChange sets the thinking level.
type ThinkingLevelChange struct {
	ThinkingLevel *string `json:"thinkingLevel"`        // nil (null) means off
	Configured    *string `json:"configured,omitempty"` // "auto" or a level; nil: as ThinkingLevel
}

// ModelChange sets the model of a role. oh-my-pi writes Model, pi writes Provider
// and ModelID; [ModelChange.Selector] reads either.
type ModelChange struct {
	Model                   string `json:"model,omitempty"` // "provider/id"
	Provider                string `json:"provider,omitempty"`
	ModelID                 string `json:"modelId,omitempty"`
	Role                    string `json:"role,omitempty"` // "" means [ModelRoleDefault]
	ResolvedModelIsFallback bool   `json:"resolvedModelIsFallback,omitempty"`
}

// Selector returns the model in the form "provider/id", "" if none is named.
func (b ModelChange) Selector() string {
	switch {
	case b.Model != "":
		return b.Model
	case b.Provider != "" && b.ModelID != "":
		return b.Provider + "/" + b.ModelID
	}
	return b.ModelID
}

// ServiceTier is the service tier asked of each family of providers, "" where none
// is.
type ServiceTier struct {
	OpenAI    string `json:"openai,omitempty"`
	Anthropic string `json:"anthropic,omitempty"`
	Google    string `json:"google,omitempty"`
}

// ServiceTierChange sets the service tier.
type ServiceTierChange struct {
	ServiceTier *ServiceTier `json:"serviceTier"` // nil (null) unsets it
}

// Compaction replaces what came before it by a summary. The entries from
// FirstKeptEntryID up to it stay in the context behind the summary; if that id is
// not on the path, none do.
type Compaction struct {
	Summary          string `json:"summary"`
	ShortSummary     string `json:"shortSummary,omitempty"`
	FirstKeptEntryID string `json:"firstKeptEntryId"`
	TokensBefore     int64  `json:"tokensBefore"`
	TokensAfter      *int64 `json:"tokensAfter,omitempty"`
	Method           string `json:"method,omitempty"` // remote, snapcompact, handoff, soft, shake
	// ProviderReplayThroughEntryID is the last entry that a provider's own
	// replacement history (in PreserveData) covers.
	ProviderReplayThroughEntryID string          `json:"providerReplayThroughEntryId,omitempty"`
	Details                      json.RawMessage `json:"details,omitempty"`
	PreserveData                 json.RawMessage `json:"preserveData,omitempty"`
	FromExtension                bool            `json:"fromExtension,omitempty"`
	FromHook                     bool            `json:"fromHook,omitempty"` // pi's name for FromExtension
	Warning                      string          `json:"warning,omitempty"`
	// Checkpoint repeats what the path has set so far, so that a reader coming
	// from the end of the file need not go on to its beginning. agentrun adds it, as
	// the member "agentrun", to what it writes; other programs ignore and keep it.
	Checkpoint *Checkpoint `json:"agentrun,omitempty"`
}

// Checkpoint is the state of a session at a compaction or reset boundary.
type Checkpoint struct {
	Settings    Settings `json:"settings"`
	Title       string   `json:"title,omitempty"`
	TitleSource string   `json:"titleSource,omitempty"`
}

// BranchSummary stands for a branch that was left.
type BranchSummary struct {
	FromID        string          `json:"fromId"` // an entry id, or "root"
	Summary       string          `json:"summary"`
	Details       json.RawMessage `json:"details,omitempty"`
	FromExtension bool            `json:"fromExtension,omitempty"`
	FromHook      bool            `json:"fromHook,omitempty"` // pi's name for FromExtension
}

// ResetBoundary cuts the context: nothing before it is sent to a model.
type ResetBoundary struct {
	Checkpoint *Checkpoint `json:"agentrun,omitempty"` // as in [Compaction]
}

// CustomTypeLeaf is the customType of an entry whose only purpose is to be the last
// one of the file: programs take that for the leaf, and so follow a branch that has no
// message yet.
const CustomTypeLeaf = "agentrun.leaf"

// CustomTypeCheckpoint is the customType of an entry that says how files were. Every
// reference to a blob in it is content of one of them.
const CustomTypeCheckpoint = "agentrun.checkpoint"

// CustomTypeState is the customType of an entry that keeps what a conversation state
// said beside its turns (package conversation). Every reference to a blob in it is one
// that the state names.
const CustomTypeState = "agentrun.state"

// CustomTypeStateTurn is the customType of an entry that says which turn of a
// conversation state the entries before it were made of, or that a turn begins there. Its
// references to blobs are that turn and what it names.
const CustomTypeStateTurn = "agentrun.state.turn"

// Custom is data of an extension. No model sees it.
type Custom struct {
	CustomType string          `json:"customType"`
	Data       json.RawMessage `json:"data,omitempty"`
}

// CustomMessage is a message that an extension puts into the context.
type CustomMessage struct {
	CustomType  string          `json:"customType"`
	Content     Content         `json:"content"`
	Display     bool            `json:"display"`
	Details     json.RawMessage `json:"details,omitempty"` // not for the model
	Attribution string          `json:"attribution,omitempty"`
}

// Label names an entry, or takes its name away when Label is empty. The last one
// for a target counts, on whatever branch it stands.
type Label struct {
	TargetID string `json:"targetId"`
	Label    string `json:"label,omitempty"`
}

// TitleChange records a new title of the session, in oh-my-pi's manner.
type TitleChange struct {
	Title         string `json:"title"`
	PreviousTitle string `json:"previousTitle,omitempty"`
	Source        string `json:"source"` // "auto" or "user"
	Trigger       string `json:"trigger,omitempty"`
}

// SessionInfo records a new title of the session, in pi's manner.
type SessionInfo struct {
	Name string `json:"name"`
}

// TTSRInjection names rules that have been injected into the conversation.
type TTSRInjection struct {
	InjectedRules []string `json:"injectedRules"`
}

// SessionInit records what a subagent started from.
type SessionInit struct {
	SystemPrompt      Prompt          `json:"systemPrompt"`
	Task              string          `json:"task"`
	Tools             []string        `json:"tools"`
	Agent             string          `json:"agent,omitempty"`
	ModelRole         string          `json:"modelRole,omitempty"`
	ResolvedModel     string          `json:"resolvedModel,omitempty"`
	ReadOnly          *bool           `json:"readOnly,omitempty"`
	OutputSchema      json.RawMessage `json:"outputSchema,omitempty"`
	OutputSchemaMode  string          `json:"outputSchemaMode,omitempty"`
	RestrictToolNames *bool           `json:"restrictToolNames,omitempty"`
	Spawns            *string         `json:"spawns,omitempty"` // "" none, "*" any, else names with commas
	ReadSummarize     *bool           `json:"readSummarize,omitempty"`
	Advisor           string          `json:"advisor,omitempty"`
}

// Prompt is a system prompt in one or several blocks. One block is written as a
// string, several as a list; both are read.
type Prompt []string

// MarshalJSON implements [json.Marshaler].
func (p Prompt) MarshalJSON() ([]byte, error) {
	switch len(p) {
	case 0:
		return []byte(`""`), nil
	case 1:
		return json.Marshal(p[0])
	}
	return json.Marshal([]string(p))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (p *Prompt) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '[' {
		return json.Unmarshal(b, (*[]string)(p))
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*p = Prompt{s}
	return nil
}

// ModeChange enters or leaves a mode such as "plan".
type ModeChange struct {
	Mode string          `json:"mode"` // [ModeNone] when left
	Data json.RawMessage `json:"data,omitempty"`
}

// CredentialPin records which account served a provider, as a hash.
type CredentialPin struct {
	Provider string `json:"provider"`
	Hash     string `json:"hash"` // SHA-256, hex
}

// Raw is a body of any type whose members are JSON already: what an entry of an
// unknown type decodes to, and the way to write one.
type Raw struct {
	Type   string
	Fields json.RawMessage // an object without envelope members; nil for none
}

// EntryType implements [Body], here and on each of the types below.
func (MessageBody) EntryType() string         { return TypeMessage }
func (ModelUsage) EntryType() string          { return TypeModelUsage }
func (ThinkingLevelChange) EntryType() string { return TypeThinkingLevelChange }
func (ModelChange) EntryType() string         { return TypeModelChange }
func (ServiceTierChange) EntryType() string   { return TypeServiceTierChange }
func (Compaction) EntryType() string          { return TypeCompaction }
func (BranchSummary) EntryType() string       { return TypeBranchSummary }
func (ResetBoundary) EntryType() string       { return TypeResetBoundary }
func (Custom) EntryType() string              { return TypeCustom }
func (CustomMessage) EntryType() string       { return TypeCustomMessage }
func (Label) EntryType() string               { return TypeLabel }
func (TitleChange) EntryType() string         { return TypeTitleChange }
func (SessionInfo) EntryType() string         { return TypeSessionInfo }
func (TTSRInjection) EntryType() string       { return TypeTTSRInjection }
func (SessionInit) EntryType() string         { return TypeSessionInit }
func (ModeChange) EntryType() string          { return TypeModeChange }
func (CredentialPin) EntryType() string       { return TypeCredentialPin }
func (b Raw) EntryType() string               { return b.Type }

// Body decodes what the entry says: one of the structs of this package, by value;
// [MessageBody] for messages (see [Entry.Message] for those); [Raw], with the
// members that are not the envelope's, for a type it does not know.
//
// It fails when a member has not the type that the format gives it. The entry is
// still good then: read it through [Entry.Raw] or [Entry.Decode].
func (e Entry) Body() (Body, error) {
	switch e.typ {
	case TypeMessage:
		return decode[MessageBody](e)
	case TypeModelUsage:
		return decode[ModelUsage](e)
	case TypeThinkingLevelChange:
		return decode[ThinkingLevelChange](e)
	case TypeModelChange:
		return decode[ModelChange](e)
	case TypeServiceTierChange:
		return decode[ServiceTierChange](e)
	case TypeCompaction:
		return decode[Compaction](e)
	case TypeBranchSummary:
		return decode[BranchSummary](e)
	case TypeResetBoundary:
		return decode[ResetBoundary](e)
	case TypeCustom:
		return decode[Custom](e)
	case TypeCustomMessage:
		return decode[CustomMessage](e)
	case TypeLabel:
		return decode[Label](e)
	case TypeTitleChange:
		return decode[TitleChange](e)
	case TypeSessionInfo:
		return decode[SessionInfo](e)
	case TypeTTSRInjection:
		return decode[TTSRInjection](e)
	case TypeSessionInit:
		return decode[SessionInit](e)
	case TypeModeChange:
		return decode[ModeChange](e)
	case TypeCredentialPin:
		return decode[CredentialPin](e)
	}
	return e.rawBody()
}

func decode[T Body](e Entry) (Body, error) {
	var b T
	if err := e.Decode(&b); err != nil {
		return nil, err
	}
	return b, nil
}

// Custom returns the body of a custom entry. ok is false for any other, and for one that does not decode.
func (e Entry) Custom() (c Custom, ok bool) {
	if e.typ != TypeCustom {
		return Custom{}, false
	}
	b, err := e.Body()
	if err != nil {
		return Custom{}, false
	}
	c, ok = b.(Custom)
	return c, ok
}

func (e Entry) rawBody() (Body, error) {
	if !ecmajson.Valid(e.raw) {
		return nil, fmt.Errorf("decoding %s: not valid JSON", e.describe())
	}
	fields := []byte{'{'}
	for name, m := range members(e.raw) {
		if isReserved(name) {
			continue
		}
		if len(fields) > 1 {
			fields = append(fields, ',')
		}
		fields = append(fields, m...)
	}
	return Raw{Type: e.typ, Fields: append(fields, '}')}, nil
}
