package entry

import (
	"encoding/json"
	"fmt"
)

// ContextOptions says what [BuildContext] can't see on the path it is given.
type ContextOptions struct {
	// Settings are those in force before the first entry of the path. Leave them
	// out for a path that begins at its root.
	Settings Settings
	// Strict leaves out what providers refuse besides: messages that say nothing, and
	// messages that the log holds twice in a row. Tool calls that share an id get
	// their own.
	Strict bool
	// KeepToolOutput prunes: this many bytes of the newest tool output stay whole, and
	// in older results one line says where the text is. 0 keeps all. It is a view;
	// the log keeps everything.
	KeepToolOutput int64
	// SessionID is cited in the place of output that is in no artifact. Without it such
	// output is not pruned.
	SessionID string
}

// Context is what a model call at a leaf starts from.
type Context struct {
	// Messages in the order in which they are sent.
	Messages []ContextMessage
	// Settings in force at the leaf.
	Settings Settings
	// Compaction is the id of the compaction that the messages begin with, "" if
	// none does.
	Compaction string
	// Prune is the id of the entry of [PruneType] that is in force, "" if none is.
	Prune string
	// Repairs lists where Messages differ from what the log says, in order.
	Repairs []Repair
}

// ContextMessage is one message of a [Context]. Its content is decoded on use.
type ContextMessage struct {
	// EntryID is the id of the entry that the message was made of. A synthetic
	// result has that of the turn it belongs to.
	EntryID string
	Role    string
	// ToolCallIDs are the calls of an assistant turn in their order, or the one call
	// that a tool result answers.
	ToolCallIDs []string
	// Synthetic marks a tool result that is in no log.
	Synthetic bool
	// Interrupted marks an assistant turn that a person cut short and that is kept
	// because a note on its reasoning follows. Its trailing thinking blocks without
	// a signature are in that note and must not be sent again.
	Interrupted bool
	// Renamed marks an assistant turn or a tool result of which an id is not the one in the
	// log; see [RepairCallID].
	Renamed bool
	// Excluded marks an execution that its user does not want a model to see.
	Excluded bool
	// Pruned stands in the place of the text of a tool result or an execution that was
	// pruned, "" for others. Message and JSON return it; Entry has the whole.
	Pruned string

	toolName string // of a synthetic result
	entry    *Entry
}

// BuildContext builds the context at the last entry of path, which runs from the
// root, or from any entry at which [Reach] needs no more messages, to that leaf.
// An empty path gives an empty context. The context keeps path, which must not be
// modified any more.
//
// The messages are those that oh-my-pi 18 selects. After the last reset boundary
// everything; else, with a compaction, its summary, then what it keeps, then what
// follows it; else everything. Assistant turns that failed (aborted, error, or
// replaced by a retry) are left out along with their tool results, unless a note
// on the interrupted reasoning follows at once.
//
// Unlike there, no signed content is rewritten and no call vanishes: a tool call
// without a result on the path gets a synthetic one, so that a provider accepts
// the messages and the model learns that it was interrupted. [Context.Repairs]
// lists these, along with results that had to be moved or left out.
func BuildContext(path []Entry, opts ContextOptions) *Context {
	ctx := &Context{Settings: opts.Settings.Clone()}
	ctx.Settings.foldPath(path)
	p := newPairing(len(path))
	p.strict = opts.Strict
	boundary := lastOf(path, TypeResetBoundary)
	compaction := lastOf(path, TypeCompaction)
	if compaction > boundary {
		ctx.Compaction = path[compaction].id
		p.push(ContextMessage{EntryID: path[compaction].id, Role: RoleCompactionSummary, entry: &path[compaction]})
		before := kept(path[:compaction], path[compaction].compaction())
		for i := range before {
			p.add(&before[i])
		}
		boundary = compaction
	}
	for i := range path[boundary+1:] {
		p.add(&path[boundary+1+i])
	}
	ctx.Messages, ctx.Repairs = p.resolve()
	if at := lastPrune(path[boundary+1:]); at >= 0 {
		pruneBefore(ctx, path[boundary+1+at], opts)
	}
	if opts.KeepToolOutput > 0 {
		prune(ctx.Messages, opts)
	}
	return ctx
}

func lastOf(path []Entry, typ string) int {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i].typ == typ {
			return i
		}
	}
	return -1
}

// kept returns the end of before that k keeps. Earlier compactions in it are
// passed over: only the last one has a say.
func kept(before []Entry, k keep) []Entry {
	if k.start == "" {
		return nil
	}
	for i := len(before) - 1; i >= 0; i-- {
		if before[i].id == k.start {
			if k.after {
				i++
			}
			return before[i:]
		}
	}
	return nil
}

// foldPath folds all of path. Naming a model means reading past an answer's
// content, so answers are asked at the end, and only until one tells.
func (s *Settings) foldPath(path []Entry) {
	from := 0
	for i := range path {
		if path[i].typ == TypeMessage {
			continue
		}
		Fold(s, path[i])
		if _, ok := path[i].Checkpoint(); ok {
			from = i + 1
		}
	}
	for i := len(path) - 1; i >= from && !s.ExplicitModel; i-- {
		if e := path[i]; e.Role() == RoleAssistant && s.inferModel(e) {
			return
		}
	}
}

// Entry returns the entry that the message was made of, for a synthetic result
// that of its turn.
func (m ContextMessage) Entry() Entry { return *m.entry }

// Message decodes the message. It fails if a member has not the type that the
// format gives it; the message can then still be read from its entry's JSON.
func (m ContextMessage) Message() (Message, error) {
	if m.Synthetic {
		return m.interrupted(), nil
	}
	msg, err := m.entry.Message()
	if err == nil && m.Pruned != "" {
		msg = pruned(msg, m.Pruned)
	}
	return msg, err
}

// Message decodes the message that the entry contributes to a context: that of a
// message entry, or one made of a custom_message, branch_summary or compaction. For
// entries of other types it returns an error.
func (e Entry) Message() (Message, error) {
	var ms int64
	if e.ms != noTime {
		ms = e.ms
	}
	switch e.typ {
	case TypeMessage:
		m, err := DecodeMessage([]byte(e.message().Raw))
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", e.describe(), err)
		}
		return m, nil
	case TypeCustomMessage:
		var b CustomMessage
		if err := e.Decode(&b); err != nil {
			return nil, err
		}
		return ExtensionMessage{
			Role: RoleCustom, CustomType: b.CustomType, Content: b.Content, Display: b.Display,
			Details: b.Details, Attribution: b.Attribution, Timestamp: ms,
		}, nil
	case TypeBranchSummary:
		var b BranchSummary
		if err := e.Decode(&b); err != nil {
			return nil, err
		}
		return BranchSummaryMessage{Summary: b.Summary, FromID: b.FromID, Timestamp: ms}, nil
	case TypeCompaction:
		var b Compaction
		if err := e.Decode(&b); err != nil {
			return nil, err
		}
		return CompactionSummaryMessage{
			Summary: b.Summary, ShortSummary: b.ShortSummary, TokensBefore: b.TokensBefore, TokensAfter: b.TokensAfter,
			Method: b.Method, Warning: b.Warning, PreserveData: b.PreserveData, Timestamp: ms,
		}, nil
	}
	return nil, fmt.Errorf("reading %s: entries of this type hold no message", e.describe())
}

// InterruptedResult is what a model reads in place of a result that is missing.
const InterruptedResult = "Interrupted: no result of this tool call was recorded. It may or may not have run."

// interrupted makes the result that the log lacks.
func (m ContextMessage) interrupted() ToolResultMessage {
	result := ToolResultMessage{
		ToolCallID: m.ToolCallIDs[0], ToolName: m.toolName, Content: Blocks(TextBlock{Text: InterruptedResult}), IsError: true,
	}
	if m.entry.ms != noTime {
		result.Timestamp = m.entry.ms
	}
	return result
}

// JSON returns the message as JSON: the bytes of the log where it stands there as
// such, else what its typed form marshals to.
func (m ContextMessage) JSON() (json.RawMessage, error) {
	if m.entry.typ == TypeMessage && !m.Synthetic && m.Pruned == "" {
		return json.RawMessage(m.entry.message().Raw), nil
	}
	msg, err := m.Message()
	if err != nil {
		return nil, err
	}
	return marshal(msg)
}
