package entry

import "fmt"

// RepairKind says how a built context differs from the log.
type RepairKind string

// The kinds of repair that [BuildContext] makes.
const (
	// RepairInterrupted: a call has no result; a synthetic one was put in.
	RepairInterrupted RepairKind = "interrupted"
	// RepairOrphan: a result answers no call before it, or one that has its result
	// already; it was left out.
	RepairOrphan RepairKind = "orphan"
	// RepairMoved: other messages stood between a turn and this result; it now
	// follows its turn.
	RepairMoved RepairKind = "moved"
	// RepairUnreadable: a message has no role or no content; it was left out.
	RepairUnreadable RepairKind = "unreadable"
	// RepairEmpty: a message says nothing; it was left out. Only with
	// [ContextOptions].Strict, as the next two.
	RepairEmpty RepairKind = "empty"
	// RepairRepeated: a message is the one before it once more, to the byte and to
	// the millisecond; it was left out.
	RepairRepeated RepairKind = "repeated"
	// RepairCallID: a tool call has the id of another one, or none; it and its result
	// got an id of their own. Only with Strict.
	RepairCallID RepairKind = "call-id"
)

// The kinds of repair that take more than a path: package session makes them when
// it resumes a session.
const (
	// RepairParent: the parent of the entry is nowhere in the file; the path goes on
	// with the nearest entry before it.
	RepairParent RepairKind = "parent"
	// RepairCycle: the parents of the entry lead back to it; as for RepairParent.
	RepairCycle RepairKind = "cycle"
	// RepairDuplicateID: a later entry has the same id, and programs that look parents
	// up by id would go there. The path here is right all the same.
	RepairDuplicateID RepairKind = "duplicate-id"
	// RepairTorn: repairs were being written when the process ended; what there is of
	// them was left out.
	RepairTorn RepairKind = "torn"
	// RepairImage: an image is larger than providers take; a note stands in its place.
	RepairImage RepairKind = "image"
	// RepairBlob: an image or a long string lies in a blob that cannot be read; a
	// note stands in its place, or the beginning of the string.
	RepairBlob RepairKind = "blob"
)

// Repair is one difference between a built context and the log.
type Repair struct {
	Kind       RepairKind
	EntryID    string // of the result or message, or of the turn whose call has no result
	Offset     int64  // of that entry's line in its file: ids may not be unique
	ToolCallID string // "" for a message that is no result and has no call
	Detail     string // what is wrong, where the kind alone does not tell
}

// What is a sentence about the repair, for people. Names from the file are
// shortened.
func (r Repair) What() string {
	if r.Detail != "" {
		return r.Detail
	}
	switch r.Kind {
	case RepairInterrupted:
		return fmt.Sprintf("tool call %.80q has no result; one that says so was put in", r.ToolCallID)
	case RepairOrphan:
		return fmt.Sprintf("result of tool call %.80q, which is not open before it; left out", r.ToolCallID)
	case RepairMoved:
		return fmt.Sprintf("result of tool call %.80q stood apart from its turn; put behind it", r.ToolCallID)
	case RepairUnreadable:
		return "message without a role or content; left out"
	case RepairEmpty:
		return "message that says nothing; left out"
	case RepairRepeated:
		return "the message before it once more; left out"
	case RepairCallID:
		return fmt.Sprintf("another tool call has the id %.80q; this one got an id of its own", r.ToolCallID)
	case RepairParent:
		return "its parent is nowhere in the file; the entry before it is taken instead"
	case RepairCycle:
		return "its parents lead back to it; the entry before it is taken instead"
	case RepairDuplicateID:
		return "a later entry has the same id"
	case RepairTorn:
		return "repairs that were not written to their end; left out"
	}
	return string(r.Kind)
}
