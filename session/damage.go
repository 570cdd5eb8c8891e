package session

import "github.com/agentrun/agentrun/session/internal/record"

// Kind says what is wrong with a stretch of a session file.
type Kind = record.Kind

// The kinds of damage, and what they cost.
const (
	KindTorn      = record.KindTorn        // a record without its end; the stretch is lost
	KindNUL       = record.KindNUL         // a run of NUL bytes, as a power cut leaves; nothing else is lost
	KindJoined    = record.KindJoined      // two records on one line; both are used
	KindGarbage   = record.KindGarbage     // bytes that are no record
	KindScalar    = record.KindScalar      // JSON that is no object
	KindChecksum  = record.KindChecksum    // changed after it was written, by damage or by another program; the line is used
	KindDuplicate = record.KindDuplicateID // an id that an earlier entry has; both are used, a parent means the nearest before
	KindOrphan    = record.KindOrphan      // the parent is not there; the entry is a root of the tree, and contexts go on with the entry before it
	KindCycle     = record.KindCycle       // the entry is its own ancestor; as for KindOrphan
)

// Kinds that only Manager.Check finds: a session with them does not open, or hides
// them.
const (
	KindHeader Kind = "header" // there is no header, or none that can be read
	KindFrame  Kind = "frame"  // a compressed stretch of the log that cannot be decompressed; its lines are lost
	KindSeek   Kind = "seek"   // the frame table of a compressed log; nothing is lost
)

// Damage is one stretch of a session file that is not as it was written.
type Damage struct {
	Line   int    `json:"line"`   // of the file, from 1
	Offset int64  `json:"offset"` // of the stretch in the file
	Bytes  int64  `json:"bytes"`
	Kind   Kind   `json:"kind"`
	ID     string `json:"id,omitempty"` // of the entry, where there is one
	// Lines is how many adjacent lines of one kind this stands for; they are
	// told one by one up to maxSingleDamage.
	Lines int `json:"lines,omitempty"`
}

// Damage is listed line by line up to maxSingleDamage and then by stretches of
// adjacent lines; a file of ten million lines of garbage must not make a list
// that is bigger than itself.
const maxSingleDamage = 10_000

// damageList collects damage in file order.
type damageList []Damage

func (l *damageList) add(d Damage) {
	if n := len(*l); n >= maxSingleDamage {
		last := &(*l)[n-1]
		if last.Kind == d.Kind && d.Line <= last.Line+max(last.Lines, 1) {
			last.Lines = d.Line + max(d.Lines, 1) - last.Line
			last.Bytes = d.Offset + d.Bytes - last.Offset
			last.ID = ""
			return
		}
	}
	*l = append(*l, d)
}
