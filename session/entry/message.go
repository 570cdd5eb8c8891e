package entry

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tidwall/gjson"
)

// Message is one message of a conversation: one of the structs below, by value.
// Messages are bodies, so they can be appended to a session as they are.
//
// The structs hold the members that programs agree on. A message read from a log
// may have more, which only its JSON keeps: do not write back what was decoded.
type Message interface {
	Body
	// MessageRole returns the value of the message's "role" member.
	MessageRole() string
}

// UserMessage is what a person says, or, with Role [RoleDeveloper], what the
// program says in the person's place.
type UserMessage struct {
	Role             string          `json:"role"` // "" means [RoleUser]
	Content          Content         `json:"content"`
	Timestamp        int64           `json:"timestamp"` // Unix milliseconds, as in all messages
	Synthetic        bool            `json:"synthetic,omitempty"`
	Steering         bool            `json:"steering,omitempty"`
	Attribution      string          `json:"attribution,omitempty"` // "user" or "agent"
	UserInitiated    bool            `json:"userInitiated,omitempty"`
	HistoryRewriteAt json.RawMessage `json:"historyRewriteAt,omitempty"`
	ProviderPayload  json.RawMessage `json:"providerPayload,omitempty"`
}

// AssistantMessage is one answer of a model.
type AssistantMessage struct {
	Content               Content         `json:"content"`
	API                   string          `json:"api"`
	Provider              string          `json:"provider"`
	Model                 string          `json:"model"`
	Usage                 Usage           `json:"usage"`
	StopReason            string          `json:"stopReason"` // one of the Stop constants
	Timestamp             int64           `json:"timestamp"`
	ResponseID            string          `json:"responseId,omitempty"`
	ErrorMessage          string          `json:"errorMessage,omitempty"`
	ErrorStatus           *int            `json:"errorStatus,omitempty"`
	ErrorID               json.RawMessage `json:"errorId,omitempty"`
	StopDetails           json.RawMessage `json:"stopDetails,omitempty"`
	ToolCallAbortMessages json.RawMessage `json:"toolCallAbortMessages,omitempty"`
	ContextSnapshot       json.RawMessage `json:"contextSnapshot,omitempty"`
	RetryRecovery         json.RawMessage `json:"retryRecovery,omitempty"`
	UpstreamProvider      string          `json:"upstreamProvider,omitempty"`
	UpstreamModel         string          `json:"upstreamModel,omitempty"`
	DisabledFeatures      json.RawMessage `json:"disabledFeatures,omitempty"`
	InputTransformations  json.RawMessage `json:"inputTransformations,omitempty"`
	ProviderPayload       json.RawMessage `json:"providerPayload,omitempty"`
	Duration              *float64        `json:"duration,omitempty"` // milliseconds
	TTFT                  *float64        `json:"ttft,omitempty"`     // to the first token, milliseconds
	CompletedAt           *float64        `json:"completedAt,omitempty"`
}

// ToolResultMessage answers one tool call.
type ToolResultMessage struct {
	ToolCallID       string          `json:"toolCallId"`
	ToolName         string          `json:"toolName"`
	Content          Content         `json:"content"`
	Details          json.RawMessage `json:"details,omitempty"` // not for the model
	IsError          bool            `json:"isError"`
	Timestamp        int64           `json:"timestamp"`
	PrunedAt         *float64        `json:"prunedAt,omitempty"`
	Useless          bool            `json:"useless,omitempty"`
	ProviderMetadata json.RawMessage `json:"providerMetadata,omitempty"`
	Attribution      string          `json:"attribution,omitempty"`
}

// BashExecutionMessage is a command that a person, not the model, had run.
type BashExecutionMessage struct {
	Command            string          `json:"command"`
	Output             string          `json:"output"`
	ExitCode           *int            `json:"exitCode,omitempty"`
	Cancelled          bool            `json:"cancelled"`
	Truncated          bool            `json:"truncated"`
	Images             []ImageBlock    `json:"images,omitempty"`
	Meta               json.RawMessage `json:"meta,omitempty"`
	ExcludeFromContext bool            `json:"excludeFromContext,omitempty"`
	Timestamp          int64           `json:"timestamp"`
	Details            json.RawMessage `json:"details,omitempty"` // agentrun: the run and its artifact
}

// PythonExecutionMessage is Python code that a person, not the model, had run.
type PythonExecutionMessage struct {
	Code               string          `json:"code"`
	Output             string          `json:"output"`
	ExitCode           *int            `json:"exitCode,omitempty"`
	Cancelled          bool            `json:"cancelled"`
	Truncated          bool            `json:"truncated"`
	Images             []ImageBlock    `json:"images,omitempty"` // agentrun: what the code displayed
	Meta               json.RawMessage `json:"meta,omitempty"`
	ExcludeFromContext bool            `json:"excludeFromContext,omitempty"`
	Timestamp          int64           `json:"timestamp"`
	Details            json.RawMessage `json:"details,omitempty"` // agentrun: the run and its artifact
}

// ExtensionMessage is the message of an extension. Contexts make one of each
// custom_message entry.
type ExtensionMessage struct {
	Role        string          `json:"role"` // "" means [RoleCustom]
	CustomType  string          `json:"customType"`
	Content     Content         `json:"content"`
	Display     bool            `json:"display"`
	Details     json.RawMessage `json:"details,omitempty"`
	Attribution string          `json:"attribution,omitempty"`
	Timestamp   int64           `json:"timestamp"`
}

// FileMentionMessage is a set of files that a person pointed at.
type FileMentionMessage struct {
	Files     []MentionedFile `json:"files"`
	Timestamp int64           `json:"timestamp"`
}

// MentionedFile is one file of a [FileMentionMessage].
type MentionedFile struct {
	Path          string      `json:"path"`
	Content       string      `json:"content"`
	LineCount     *int64      `json:"lineCount,omitempty"`
	ByteSize      *int64      `json:"byteSize,omitempty"`
	SkippedReason string      `json:"skippedReason,omitempty"` // tooLarge or binary
	Image         *ImageBlock `json:"image,omitempty"`
}

// BranchSummaryMessage is what a context makes of a branch_summary entry.
type BranchSummaryMessage struct {
	Summary   string `json:"summary"`
	FromID    string `json:"fromId"`
	Timestamp int64  `json:"timestamp"`
}

// CompactionSummaryMessage is what a context makes of a compaction entry.
type CompactionSummaryMessage struct {
	Summary      string `json:"summary"`
	ShortSummary string `json:"shortSummary,omitempty"`
	TokensBefore int64  `json:"tokensBefore"`
	TokensAfter  *int64 `json:"tokensAfter,omitempty"`
	Method       string `json:"method,omitempty"`
	Warning      string `json:"warning,omitempty"`
	// PreserveData is the compaction's own data. A model adapter finds the
	// provider's replacement history in it.
	PreserveData json.RawMessage `json:"preserveData,omitempty"`
	Timestamp    int64           `json:"timestamp"`
}

// UnknownMessage is a message with any other role, kept as it is.
type UnknownMessage struct {
	Role string
	Raw  json.RawMessage // the whole message
}

// MessageRole implements [Message], here and on each of the types below.
func (m UserMessage) MessageRole() string {
	if m.Role == "" {
		return RoleUser
	}
	return m.Role
}

func (AssistantMessage) MessageRole() string       { return RoleAssistant }
func (ToolResultMessage) MessageRole() string      { return RoleToolResult }
func (BashExecutionMessage) MessageRole() string   { return RoleBashExecution }
func (PythonExecutionMessage) MessageRole() string { return RolePythonExecution }
func (m ExtensionMessage) MessageRole() string {
	if m.Role == "" {
		return RoleCustom
	}
	return m.Role
}
func (FileMentionMessage) MessageRole() string       { return RoleFileMention }
func (BranchSummaryMessage) MessageRole() string     { return RoleBranchSummary }
func (CompactionSummaryMessage) MessageRole() string { return RoleCompactionSummary }
func (m UnknownMessage) MessageRole() string         { return m.Role }

// EntryType implements [Body]: every message is the body of a message entry.
func (UserMessage) EntryType() string              { return TypeMessage }
func (AssistantMessage) EntryType() string         { return TypeMessage }
func (ToolResultMessage) EntryType() string        { return TypeMessage }
func (BashExecutionMessage) EntryType() string     { return TypeMessage }
func (PythonExecutionMessage) EntryType() string   { return TypeMessage }
func (ExtensionMessage) EntryType() string         { return TypeMessage }
func (FileMentionMessage) EntryType() string       { return TypeMessage }
func (BranchSummaryMessage) EntryType() string     { return TypeMessage }
func (CompactionSummaryMessage) EntryType() string { return TypeMessage }
func (UnknownMessage) EntryType() string           { return TypeMessage }

// UserText returns a user message of one text block, sent now.
func UserText(s string) UserMessage {
	return UserMessage{Role: RoleUser, Content: Blocks(TextBlock{Text: s}), Timestamp: time.Now().UnixMilli()}
}

// ToolResult returns the successful answer to call, made now.
func ToolResult(call ToolCallBlock, content Content) ToolResultMessage {
	return ToolResultMessage{
		ToolCallID: call.ID, ToolName: call.Name, Content: content, Timestamp: time.Now().UnixMilli(),
	}
}

// ToolError returns the answer to a call that failed, made now.
func ToolError(call ToolCallBlock, problem string) ToolResultMessage {
	m := ToolResult(call, Blocks(TextBlock{Text: problem}))
	m.IsError = true
	return m
}

// roleTag is the member that the message structs leave to their marshalers, unless
// they stand for several roles.
type roleTag struct {
	Role string `json:"role"`
}

// MarshalJSON implements [json.Marshaler], here and on each of the types below: a
// message's first member is its role.
func (m UserMessage) MarshalJSON() ([]byte, error) {
	type fields UserMessage
	m.Role = m.MessageRole()
	return marshal(fields(m))
}

func (m AssistantMessage) MarshalJSON() ([]byte, error) {
	type fields AssistantMessage
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RoleAssistant}, fields(m)})
}

func (m ToolResultMessage) MarshalJSON() ([]byte, error) {
	type fields ToolResultMessage
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RoleToolResult}, fields(m)})
}

func (m BashExecutionMessage) MarshalJSON() ([]byte, error) {
	type fields BashExecutionMessage
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RoleBashExecution}, fields(m)})
}

func (m PythonExecutionMessage) MarshalJSON() ([]byte, error) {
	type fields PythonExecutionMessage
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RolePythonExecution}, fields(m)})
}

func (m ExtensionMessage) MarshalJSON() ([]byte, error) {
	type fields ExtensionMessage
	m.Role = m.MessageRole()
	return marshal(fields(m))
}

func (m FileMentionMessage) MarshalJSON() ([]byte, error) {
	type fields FileMentionMessage
	if m.Files == nil {
		m.Files = []MentionedFile{}
	}
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RoleFileMention}, fields(m)})
}

func (m BranchSummaryMessage) MarshalJSON() ([]byte, error) {
	type fields BranchSummaryMessage
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RoleBranchSummary}, fields(m)})
}

func (m CompactionSummaryMessage) MarshalJSON() ([]byte, error) {
	type fields CompactionSummaryMessage
	return marshal(struct {
		roleTag
		fields
	}{roleTag{RoleCompactionSummary}, fields(m)})
}

func (m UnknownMessage) MarshalJSON() ([]byte, error) {
	if m.Raw == nil {
		return marshal(roleTag{m.Role})
	}
	return m.Raw, nil
}

// DecodeMessage decodes a message from its JSON. One with an unknown role, or
// without any, becomes an [UnknownMessage].
func DecodeMessage(raw []byte) (Message, error) {
	switch role := str(gjson.Get(text(raw), "role")); role {
	case RoleUser, RoleDeveloper:
		return decodeMessage[UserMessage](raw)
	case RoleAssistant:
		return decodeMessage[AssistantMessage](raw)
	case RoleToolResult:
		return decodeMessage[ToolResultMessage](raw)
	case RoleBashExecution:
		return decodeMessage[BashExecutionMessage](raw)
	case RolePythonExecution:
		return decodeMessage[PythonExecutionMessage](raw)
	case RoleCustom, RoleHookMessage:
		return decodeMessage[ExtensionMessage](raw)
	case RoleFileMention:
		return decodeMessage[FileMentionMessage](raw)
	case RoleBranchSummary:
		return decodeMessage[BranchSummaryMessage](raw)
	case RoleCompactionSummary:
		return decodeMessage[CompactionSummaryMessage](raw)
	default:
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil || object == nil {
			return nil, errors.New("decoding a message: not a JSON object")
		}
		return UnknownMessage{Role: role, Raw: append(json.RawMessage(nil), raw...)}, nil
	}
}

func decodeMessage[T Message](raw []byte) (Message, error) {
	var m T
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("decoding a %s message: %w", m.MessageRole(), err)
	}
	return m, nil
}
