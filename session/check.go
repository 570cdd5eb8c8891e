package session

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// Checkup is what reading a whole log found. It is of the moment when it was read.
type Checkup struct {
	Path       string // of the file that was read
	ID         string
	CWD        string
	Compressed bool
	// Writable is false for a file of a newer version of the format, which is never
	// changed.
	Writable  bool
	Entries   int
	Unsealed  int   // entries without a crc: a changed byte in them shows only where it breaks the JSON
	Bytes     int64 // of the log, decompressed
	Damage    []Stretch
	Blobs     []BlobCitation
	Artifacts []ArtifactCitation
	Agents    []AgentCitation
	// Index is set when the log's rebuildable index does not hold its crc. It is not
	// believed, and written anew by the next program that learns something.
	Index bool
	// Kept is where Repair put the bytes that are not in the log any more, "" when
	// there are none.
	Kept string
}

// Stretch is damage with what is known around it.
type Stretch struct {
	Damage
	// Flip is the bit that is not as it was written, where it is one and known which.
	Flip *Bit
	// Before and After are the whole entries around it, zero at the ends of the file.
	Before, After Landmark
	// Repeated is set for a torn record whose whole form follows: nothing is lost.
	Repeated bool
	// From is where the header that takes the place of a lost one comes from, a clause.
	From string
}

// Bit is one bit of a file.
type Bit struct {
	Offset int64 // of its byte
	Mask   byte
}

// Landmark is an entry that helps to tell when something happened.
type Landmark struct {
	ID   string
	Time time.Time // zero when the entry does not tell
}

// Check reads the whole log at path, verifies every checksum, and says what is wrong
// with it and what it refers to. It also reads a log that does not open because its
// header is lost, and changes nothing on disk. The error matches ErrNotSession for a
// file in which nothing is a session's.
func (m *Manager) Check(ctx context.Context, path string) (*Checkup, error) {
	x, err := m.examine(ctx, catalog.PlainPath(path))
	if err != nil {
		return nil, err
	}
	defer x.st.close()
	if x.strange {
		return nil, fmt.Errorf("reading %s: %w: %w", path, ErrNotSession, errStrange)
	}
	return x.checkup(m), nil
}

func (x *examined) checkup(m *Manager) *Checkup {
	st := x.st
	c := &Checkup{
		Path: st.file.Name(), ID: st.header.ID, CWD: st.header.CWD, Compressed: st.cold,
		Writable: st.none || st.header.Writable(), Entries: x.tree.Len(), Unsealed: x.tree.unsealed,
		Bytes: x.raw.size, Damage: make([]Stretch, 0, len(x.damage)),
		Blobs: x.tree.cited.blobs, Artifacts: x.tree.cited.artifacts, Agents: x.tree.cited.agents,
		Index: m.brokenIndex(st.file.Name()),
	}
	for _, d := range x.damage {
		c.Damage = append(c.Damage, x.stretch(d))
	}
	c.Blobs = append(c.Blobs, x.foldedBlobs()...)
	return c
}

// foldedBlobs are the blobs that hold what a compressed log repeats.
func (x *examined) foldedBlobs() []BlobCitation {
	t := foldsOf(x.raw)
	if t == nil {
		return nil
	}
	list := make([]BlobCitation, len(t.blobs))
	for _, f := range t.list {
		b := &list[f.blob]
		if b.Count++; b.Count == 1 {
			*b = BlobCitation{Ref: t.blobs[f.blob].ref, Count: 1, Folded: true, First: x.placeOf(f.off)}
		}
	}
	return slices.DeleteFunc(list, func(b BlobCitation) bool { return b.Count == 0 })
}

// placeOf is the entry, or the damage, that an offset of the log lies in.
func (x *examined) placeOf(off int64) Place {
	list := x.tree.nodes.list
	i := sort.Search(len(list), func(i int) bool { return list[i].off > off }) - 1
	if i >= 0 && off < list[i].off+int64(list[i].size) {
		n := x.tree.Node(i)
		return Place{Entry: n.ID, Line: n.Line, Offset: n.Offset, Bytes: int64(n.Size)}
	}
	for _, d := range x.damage {
		if d.Kind != KindFrame && d.Offset <= off && off < d.Offset+d.Bytes {
			return Place{Line: d.Line, Offset: d.Offset, Bytes: d.Bytes}
		}
	}
	return Place{Offset: off}
}

func (x *examined) stretch(d Damage) Stretch {
	s := Stretch{Damage: d}
	for _, f := range x.flips {
		if f.told == d {
			s.Flip = &Bit{f.at, f.mask}
		}
	}
	if x.lost != nil && d == x.lost.told {
		s.From = x.lost.from
	}
	// Offsets of an image are not those of the file; lines are.
	before, after := x.around(d)
	s.Before, s.After = x.landmark(before), x.landmark(after)
	if d.Kind == KindTorn && after >= 0 {
		next := x.tree.nodes.list[after]
		s.Repeated = d.Bytes <= int64(next.size) && sameBytes(x.st.src, d.Offset, next.off, d.Bytes)
	}
	return s
}

// around returns the entries before and behind d, -1 where there is none.
func (x *examined) around(d Damage) (before, after int) {
	list := x.tree.nodes.list
	switch d.Kind {
	case KindSeek:
		return -1, -1
	case KindFrame:
		frames, t := salvagedOf(x.raw)
		at := t.logOffset(frames.gap(d.Offset))
		after = sort.Search(len(list), func(i int) bool { return list[i].off > at })
		if before = after - 1; after == len(list) {
			after = -1
		}
		return before, after
	}
	line := uint32(d.Line)
	if x.lost != nil && x.st.image != nil {
		line++
	}
	lo, hi := 0, len(list)
	for lo < hi {
		if mid := (lo + hi) / 2; list[mid].line < line || list[mid].line == line && list[mid].off < d.Offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	before, after = lo-1, lo
	for after < len(list) && list[after].line <= line && list[after].off < d.Offset+max(d.Bytes, 1) {
		after++ // the damaged entry itself
	}
	if after == len(list) {
		after = -1
	}
	return before, after
}

func (x *examined) landmark(i int) Landmark {
	if i < 0 {
		return Landmark{}
	}
	e, err := x.tree.entry(i)
	if err != nil {
		return Landmark{}
	}
	return Landmark{ID: e.ID(), Time: e.Time()}
}

func sameBytes(src source, a, b, n int64) bool {
	if a == b || n <= 0 || n > record.MaxCorrect {
		return false
	}
	p, err := readSpan(src, a, a+n, nil)
	q, qerr := readSpan(src, b, b+n, nil)
	return err == nil && qerr == nil && string(p) == string(q)
}

// brokenIndex reports whether the log's index was written and is not whole.
func (m *Manager) brokenIndex(path string) bool {
	data, err := readIndex(m.opts.FS, path)
	return err == nil && record.Verify(record.Trim(data)) == record.CRCMismatch
}
