package doctor

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentrun/agentrun/session"
)

// Finding is one thing that is wrong. Its JSON is what `doctor --json` prints.
type Finding struct {
	// Kind is a session.Kind for a stretch of a log, else one of the constants below.
	Kind string `json:"kind"`
	File string `json:"file"`
	// Line counts from 1. Line, Offset and Bytes are null where they mean nothing: a
	// blob has no lines, a missing file no bytes.
	Line   *int   `json:"line"`
	Offset *int64 `json:"offset"`
	Bytes  *int64 `json:"bytes"`
	// What says what is wrong, since when where that is known, what is lost and what
	// is not, and what repair does.
	What string `json:"what"`
	// Repaired is set when repair has mended it.
	Repaired bool `json:"repaired"`

	// Unmendable is set when repair cannot mend it.
	Unmendable bool `json:"-"`
}

// Kinds of findings beside those of logs.
const (
	KindLogEmpty          = "log-empty"           // no entry, while artifacts or an index are beside it
	KindLogMissing        = "log-missing"         // artifacts without a log
	KindLogIndex          = "index"               // the rebuildable index of a log
	KindBlobCorrupt       = "blob-corrupt"        // bytes that are not those of the blob's name
	KindBlobMissing       = "blob-missing"        // cited and not there
	KindArtifactCorrupt   = "artifact-corrupt"    // bytes that are not those that were kept
	KindArtifactMissing   = "artifact-missing"    // cited, or left behind by a fork, and not there
	KindArtifactOpen      = "artifact-unfinished" // its writer died
	KindProvenance        = "artifact-provenance" // .artifact-<n>.json is not what was written
	KindLineIndex         = "artifact-index"      // the kept line index
	KindAgentOutput       = "agent-output"        // what an agent handed back
	KindAgentMissing      = "agent-missing"       // an output that is cited and not there
	KindListCache         = "list-cache"          // the rebuildable list of sessions
	KindUnreadable        = "unreadable"          // a file that cannot be read at all
	KindCheckpointDamaged = "checkpoint-damaged"  // a file of checkpoints that cannot be read
	KindCheckpointMissing = "checkpoint-missing"  // what a checkpoint refers to is not there, or corrupt
	KindUnanswered        = "tool-unanswered"     // a transcript: a tool call without its result
	KindUnasked           = "result-unasked"      // a transcript: a result without its tool call
)

// at fills the place of a finding.
func (f Finding) at(line int, offset, bytes int64) Finding {
	if line > 0 {
		f.Line = &line
	}
	f.Offset, f.Bytes = &offset, &bytes
	return f
}

// remedy ends What with what repair does, or has done.
func (f Finding) remedy(does, did string) Finding {
	switch {
	case f.Repaired:
		f.What += "; repaired: " + did
	case f.Unmendable:
		f.What += "; " + does
	default:
		f.What += "; repair " + does
	}
	return f
}

// ofStretch describes damage of a log. kept is where repair puts damaged bytes.
func ofStretch(file string, s session.Stretch, kept string, repaired bool) Finding {
	f := Finding{Kind: string(s.Kind), File: file, Repaired: repaired}.at(s.Line, s.Offset, s.Bytes)
	var b strings.Builder
	does, did := "", ""
	aside := "keeps the bytes in " + kept
	asided := "the bytes are in " + kept
	switch s.Kind {
	case session.KindTorn:
		fmt.Fprintf(&b, "a record breaks off after %d bytes", s.Bytes)
		if s.Repeated {
			b.WriteString("; its whole form follows, so nothing is lost")
		} else {
			b.WriteString("; the record is lost, all others are there")
		}
		does, did = "takes it out of the log and "+aside, asided
	case session.KindNUL:
		fmt.Fprintf(&b, "%d zero bytes, as a power cut leaves them; what should have stood here is lost, all other records are there", s.Bytes)
		does, did = "takes them out of the log and "+aside, asided
	case session.KindJoined:
		b.WriteString("records run together on one line, which some programs read as one or none; nothing is lost")
		does, did = "gives each its own line", "each has its own line"
	case session.KindGarbage:
		fmt.Fprintf(&b, "%d bytes that are no record", s.Bytes)
		if s.Lines > 1 {
			fmt.Fprintf(&b, ", in %d lines", s.Lines)
		}
		b.WriteString("; all records around them are there")
		does, did = "takes them out of the log and "+aside, asided
	case session.KindScalar:
		b.WriteString("JSON that is no record; oh-my-pi fails to open a session over some of these; nothing is lost")
		does, did = "takes it out of the log and "+aside, asided
	case session.KindChecksum:
		fmt.Fprintf(&b, "%s is not as it was written: its checksum does not hold, it was damaged or edited; it is still used, and what it says cannot be vouched for", named(s.ID, "the header"))
		does, did = "gives it a new checksum and "+aside, "it has a new checksum, "+asided
	case session.KindDuplicate:
		fmt.Fprintf(&b, "entry %s has the id of an earlier one: programs find only one of both; both are there", s.ID)
		does, did = "gives the later one, and what refers to it, a new id", "the later one has a new id"
	case session.KindOrphan:
		fmt.Fprintf(&b, "entry %s names a parent that is not before it in the file: what came before is out of its context, and still there", s.ID)
		does, did = "puts an entry in the place of the lost parent, or the parent before it", "it hangs in the tree again"
	case session.KindCycle:
		fmt.Fprintf(&b, "entry %s is its own ancestor: programs may hang or show nothing; nothing is lost", s.ID)
		does, did = "puts it under the entry before it and keeps the line in "+kept, "it is under the entry before it"
	case session.KindHeader:
		b.WriteString("the session has no header that can be read: no program opens it; its entries are there")
		does, did = "makes a header: "+s.From, "it has a header: "+s.From
	case session.KindFrame:
		fmt.Fprintf(&b, "%d bytes of the compressed log cannot be decompressed; the lines in them are lost, all others are there", s.Bytes)
		does, did = "makes a plain log of the rest and "+aside, "the rest is a plain log, "+asided
	case session.KindSeek:
		b.WriteString("the frame table of the compressed log is damaged; nothing is lost")
		does, did = "makes a plain log of it", "it is a plain log"
	}
	if s.Flip != nil {
		b.Reset()
		fmt.Fprintf(&b, "one bit flipped in %s: byte %d of the file; nothing is lost", named(s.ID, "this line"), s.Flip.Offset)
		does, did = "turns it back and keeps the line as it was in "+kept, "it is turned back"
	}
	b.WriteString(since(s))
	f.What = b.String()
	return f.remedy(does, did)
}

func named(id, otherwise string) string {
	if id == "" {
		return otherwise
	}
	return "entry " + id
}

// since tells between which entries something happened.
func since(s session.Stretch) string {
	switch before, after := landmark(s.Before), landmark(s.After); {
	case before != "" && after != "":
		return fmt.Sprintf(" (between %s and %s)", before, after)
	case before != "":
		return fmt.Sprintf(" (behind %s)", before)
	case after != "":
		return fmt.Sprintf(" (before %s)", after)
	}
	return ""
}

func landmark(l session.Landmark) string {
	switch {
	case l.ID == "":
		return ""
	case l.Time.IsZero():
		return "entry " + l.ID
	}
	return fmt.Sprintf("entry %s of %s", l.ID, l.Time.UTC().Format(time.RFC3339))
}
