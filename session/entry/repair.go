package entry

// RepairKind says how a built context differs from the log.
type RepairKind string

// The kinds of repair.
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
)

// Repair is one difference between a built context and the log.
type Repair struct {
	Kind       RepairKind
	EntryID    string // of the result or message, or of the turn whose call has no result
	ToolCallID string // "" for a message that is no result
}
