package session

import (
	"context"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// walkUp hands the entries on the way from leaf to its root to each, the leaf
// first, until it returns false. A parent is the nearest line with its id before
// its child. Only as much of the file is read as that takes; past is called for
// every other entry that is passed over, and may be nil.
func walkUp(ctx context.Context, src source, from int64, leaf string,
	each func(raw []byte, at int64, e record.Envelope) bool, past func(e record.Envelope) bool,
) error {
	if leaf == "" {
		return nil
	}
	want, going := []byte(leaf), true
	type found struct {
		raw []byte
		at  int64
		e   record.Envelope
	}
	var several []found
	return eachBackward(ctx, src, from, src.size, func(line []byte, at int64) bool {
		several = several[:0]
		eachRecord(line, func(raw []byte, in int, e record.Envelope) {
			if !e.IsHeader() && !e.IsSlot() {
				several = append(several, found{raw, at + int64(in), e})
			}
		}, nil)
		for i := len(several) - 1; i >= 0 && going; i-- {
			f := &several[i]
			switch {
			case string(f.e.ID) == string(want):
				want = f.e.Parent
				going = each(f.raw, f.at, f.e) && len(want) > 0
			case past != nil:
				going = past(f.e)
			}
		}
		return going
	})
}

// descends reports whether the entry leaf is the entry ancestor or below it.
func (st *state) descends(leaf, ancestor string) (bool, error) {
	under := leaf == ancestor
	if under || leaf == "" {
		return under, nil
	}
	err := walkUp(context.Background(), st.src, st.end, leaf,
		func(_ []byte, _ int64, e record.Envelope) bool {
			under = string(e.ID) == ancestor
			return !under
		},
		// Whatever is before it in the file cannot be below it.
		func(e record.Envelope) bool { return string(e.ID) != ancestor })
	return under, err
}

// newEntry makes an entry of a line that never changes again.
func newEntry(raw []byte, at int64, e record.Envelope, line int) entry.Entry {
	t, _ := record.ParseTime(e.Timestamp)
	return entry.New(raw, entry.Envelope{
		Type: entry.TypeName(e.Type), ID: alias(e.ID), Parent: alias(e.Parent),
		HasParent: len(e.Parent) > 0, Time: t, Offset: at, Line: line,
	})
}

// pathCache is the path of a context as it was read, to go on from there when
// entries were appended.
type pathCache struct {
	entries []entry.Entry // root or first needed entry .. leaf
	end     int64         // of the file when it was read
	reach   entry.Reach
	// torn is set when repairs without an end were left out.
	torn *tornRepair
	// broken are the entries, by their place in entries, that other programs do not
	// reach, or do not come back from, on the way to the root. repairs says why. A path
	// with repairs is not kept: what is appended may be what was missing.
	broken  []int
	repairs []entry.Repair
}

// readPath reads the path to leaf as far as its context needs it. past is told what it
// passes, and may be nil.
func readPath(ctx context.Context, st state, leaf string, past *shadows) (*pathCache, error) {
	p := &pathCache{end: st.src.size}
	if leaf == "" {
		return p, nil
	}
	want, count := leaf, 0
	var runs [][]entry.Entry // stretches of the path, the last one first
	prepare := entry.Prepare
	if past != nil { // the context will be a strict one
		prepare = entry.PrepareStrict
	}
	err := eachBlockBackward(ctx, st.src, st.end, st.src.size, prepare, func(block []entry.Entry) bool {
		if past != nil {
			past.see(block)
		}
		end := len(block) // of the stretch that is being walked
		for i := len(block) - 1; i >= 0; i-- {
			e := &block[i]
			if e.ID() != want {
				if i+1 < end {
					runs = append(runs, block[i+1:end])
				}
				end = i
				continue
			}
			count++
			p.reach.Visit(*e)
			if want = e.Parent(); !p.reach.NeedMessages() {
				runs = append(runs, block[i:end])
				return false
			}
		}
		if end > 0 {
			runs = append(runs, block[:end])
		}
		return true
	})
	p.entries = make([]entry.Entry, 0, count)
	for i := len(runs) - 1; i >= 0; i-- {
		p.entries = append(p.entries, runs[i]...)
	}
	if err != nil {
		return nil, err
	}
	return p.settle(ctx, st, past)
}
