package entry

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Types of entries that have a meaning in the format. Entries of any other type
// are kept, take part in the tree, and decode to [Raw].
const (
	TypeMessage             = "message"
	TypeModelUsage          = "model_usage"
	TypeThinkingLevelChange = "thinking_level_change"
	TypeModelChange         = "model_change"
	TypeServiceTierChange   = "service_tier_change"
	TypeCompaction          = "compaction"
	TypeBranchSummary       = "branch_summary"
	TypeResetBoundary       = "reset_boundary"
	TypeCustom              = "custom"
	TypeCustomMessage       = "custom_message"
	TypeLabel               = "label"
	TypeTitleChange         = "title_change"
	TypeTTSRInjection       = "ttsr_injection"
	TypeSessionInit         = "session_init"
	TypeModeChange          = "mode_change"
	TypeCredentialPin       = "credential_pin"
	TypeSessionInfo         = "session_info"
)

// TypeName returns name as a string, without allocating when it is one of the
// types above. It is for readers that make many entries.
func TypeName(name []byte) string {
	switch string(name) { // the compiler makes no copy for the comparison
	case TypeMessage:
		return TypeMessage
	case TypeModelUsage:
		return TypeModelUsage
	case TypeThinkingLevelChange:
		return TypeThinkingLevelChange
	case TypeModelChange:
		return TypeModelChange
	case TypeServiceTierChange:
		return TypeServiceTierChange
	case TypeCompaction:
		return TypeCompaction
	case TypeBranchSummary:
		return TypeBranchSummary
	case TypeResetBoundary:
		return TypeResetBoundary
	case TypeCustom:
		return TypeCustom
	case TypeCustomMessage:
		return TypeCustomMessage
	case TypeLabel:
		return TypeLabel
	case TypeTitleChange:
		return TypeTitleChange
	case TypeTTSRInjection:
		return TypeTTSRInjection
	case TypeSessionInit:
		return TypeSessionInit
	case TypeModeChange:
		return TypeModeChange
	case TypeCredentialPin:
		return TypeCredentialPin
	case TypeSessionInfo:
		return TypeSessionInfo
	}
	return string(name)
}

// Envelope is what every entry has besides its body, and where its line stands.
type Envelope struct {
	Type      string
	ID        string
	Parent    string    // meaningless unless HasParent
	HasParent bool      // false: parentId is null or absent, the entry is a root
	Time      time.Time // kept to the millisecond, as the format does; zero if unreadable
	Offset    int64     // of the line's first byte in the file
	Line      int       // as the reader counts lines
}

// Entry is one record of a session log: its JSON to the byte and its envelope.
// It is an immutable value of about 100 bytes, cheap to copy and meant to stand in
// slices. The zero Entry has no JSON and no type.
type Entry struct {
	raw       []byte
	typ       string
	id        string
	parent    string
	ms        int64 // Unix milliseconds, or noTime
	offset    int64
	line      int
	hasParent bool
	seen      *glance // by Prepare, or nil
}

const noTime = math.MinInt64

// New makes an entry of one JSON object, without its line end, and the envelope
// that the caller has read from it. It keeps raw, which must not change any more.
func New(raw []byte, e Envelope) Entry {
	ms := int64(noTime)
	if !e.Time.IsZero() {
		ms = e.Time.UnixMilli()
	}
	return Entry{
		raw: raw, typ: e.Type, id: e.ID, parent: e.Parent, hasParent: e.HasParent,
		ms: ms, offset: e.Offset, line: e.Line,
	}
}

// Raw returns the entry's JSON to the byte. Callers must not modify it.
func (e Entry) Raw() []byte { return e.raw }

// Type returns the entry's type, one of the Type constants or any other string.
func (e Entry) Type() string { return e.typ }

// ID returns the entry's id. Ids have no fixed form or length.
func (e Entry) ID() string { return e.id }

// Parent returns the id of the entry this one follows, "" for a root.
func (e Entry) Parent() string {
	if !e.hasParent {
		return ""
	}
	return e.parent
}

// HasParent reports whether the entry names a parent. The parent need not exist.
func (e Entry) HasParent() bool { return e.hasParent }

// Time returns when the entry was made, in UTC, to the millisecond, and the zero
// time if the line does not tell.
func (e Entry) Time() time.Time {
	if e.ms == noTime {
		return time.Time{}
	}
	return time.UnixMilli(e.ms).UTC()
}

// Offset returns where the line begins in its file, in bytes.
func (e Entry) Offset() int64 { return e.offset }

// Line returns the number of the line, as the reader of the file counts.
func (e Entry) Line() int { return e.line }

// Envelope returns the entry's envelope.
func (e Entry) Envelope() Envelope {
	return Envelope{
		Type: e.typ, ID: e.id, Parent: e.Parent(), HasParent: e.hasParent,
		Time: e.Time(), Offset: e.offset, Line: e.line,
	}
}

// Decode unmarshals the whole line into v, as [json.Unmarshal] does. It is the way
// to members that the types of this package do not have.
func (e Entry) Decode(v any) error {
	if err := json.Unmarshal(e.raw, v); err != nil {
		return fmt.Errorf("decoding %s: %w", e.describe(), err)
	}
	return nil
}

// describe names the entry in an error, shortened because ids and types come from
// the file.
func (e Entry) describe() string {
	return fmt.Sprintf("%.40q entry %.40q at offset %d", e.typ, e.id, e.offset)
}
