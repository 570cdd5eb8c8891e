package pointers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/agentrun/agentrun/blobref"
)

// A journal is what was set of one conversation, a line for each CompareAndSet:
//
//	{"set":[{"blob":"<hex>"},{"bubble":"<id>","blob":"<hex>"}],"time":"<RFC 3339>","crc":"<8 hex>"}
//
// crc is CRC-32C of the bytes of the line before `,"crc"`. A last line without its end was never acknowledged, and is
// cut off by the next writer; any other line that does not fit its checksum is damage.
type journal struct {
	sets  []set // oldest first
	whole int64 // how many bytes of the file they are
}

// set is one line.
type set struct {
	Set  []setting `json:"set"`
	Time time.Time `json:"time"`
}

type setting struct {
	Bubble string `json:"bubble,omitempty"`
	Blob   string `json:"blob"`
	ref    blobref.Ref
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const crcMember = `,"crc":"`

// line encodes a set.
func (s set) line() []byte {
	data, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings and a time of this century
	}
	data = data[:len(data)-1]
	return fmt.Appendf(data, "%s%08x\"}\n", crcMember, crc32.Checksum(data, castagnoli))
}

// parseLine reads a line without its end.
func parseLine(line []byte) (set, error) {
	var s set
	at := bytes.LastIndex(line, []byte(crcMember))
	if at < 0 || string(line[at:]) != fmt.Sprintf("%s%08x\"}", crcMember, crc32.Checksum(line[:at], castagnoli)) {
		return s, fmt.Errorf("its checksum is not that of what it says")
	}
	if err := json.Unmarshal(line, &s); err != nil {
		return s, err
	}
	if len(s.Set) == 0 {
		return s, fmt.Errorf("it sets nothing")
	}
	for i := range s.Set {
		ref, err := blobref.ParseHex(s.Set[i].Blob)
		if err != nil {
			return s, err
		}
		if s.Set[i].Bubble != "" {
			if err := CheckID("bubble", s.Set[i].Bubble); err != nil {
				return s, err
			}
		}
		s.Set[i].ref = ref
	}
	return s, nil
}

// parseJournal reads a journal.
func parseJournal(data []byte) (journal, error) {
	var j journal
	for n := 1; len(data) > 0; n++ {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		if !ended {
			// One that only lost its end was whole when it was acknowledged: what is cut short has no byte behind it.
			if _, err := parseLine(line[:len(line)-1]); err == nil {
				return j, fmt.Errorf("%w: the end of line %d is another byte", ErrDamaged, n)
			}
			break
		}
		s, err := parseLine(line)
		if err != nil {
			return j, fmt.Errorf("%w: line %d: %w", ErrDamaged, n, err)
		}
		j.sets = append(j.sets, s)
		j.whole += int64(len(line)) + 1
		data = rest
	}
	return j, nil
}

// find returns a pointer; its Ref is zero when it is not set.
func (j journal) find(conversation, bubble string) Pointer {
	for _, s := range slices.Backward(j.sets) {
		for _, one := range slices.Backward(s.Set) {
			if one.Bubble == bubble {
				return Pointer{conversation, bubble, one.ref, s.Time}
			}
		}
	}
	return Pointer{Conversation: conversation, Bubble: bubble}
}

// change returns the line that changes come to; one that sets nothing where all is so already.
func (j journal) change(conversation string, changes []Change, now time.Time) (set, error) {
	s := set{Time: now.UTC()}
	for _, c := range changes {
		if is := j.find(conversation, c.Bubble).Ref; is != c.Old {
			return s, &ConflictError{conversation, c.Bubble, is}
		}
		if c.New == c.Old {
			continue
		}
		s.Set = append(s.Set, setting{c.Bubble, c.New.Hex(), c.New})
	}
	return s, nil
}

// history is all that was set, newest first.
func (j journal) history(conversation string) (all []Pointer) {
	for _, s := range slices.Backward(j.sets) {
		for _, one := range slices.Backward(s.Set) {
			all = append(all, Pointer{conversation, one.Bubble, one.ref, s.Time})
		}
	}
	return all
}

// now is all that is set, the latest state first and then bubbles in the order in which they were set.
func (j journal) now(conversation string) (all []Pointer) {
	seen := map[string]bool{}
	for _, p := range j.history(conversation) {
		if !seen[p.Bubble] {
			seen[p.Bubble] = true
			all = append(all, p)
		}
	}
	slices.Reverse(all)
	slices.SortStableFunc(all, func(a, b Pointer) int {
		switch {
		case a.Bubble == "" && b.Bubble != "":
			return -1
		case a.Bubble != "" && b.Bubble == "":
			return 1
		}
		return 0
	})
	return all
}
