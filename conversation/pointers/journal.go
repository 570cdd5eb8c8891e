package pointers

import (
	"bytes"
	"encoding/json"
	"errors"
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
// cut off by the next writer; any other line that does not fit its checksum is damage: what it set is not known, what the
// others set is. Where it is only the end of a line that is another byte, nothing is lost.
type journal struct {
	sets  []set // oldest first
	whole int64 // how many bytes of the file they are
	open  bool  // the last of those bytes ends no line
}

// set is one line.
type set struct {
	Set     []setting `json:"set"`
	Time    time.Time `json:"time"`
	damaged error     // what is wrong with a line of which nothing else is known
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

// sealLen is how many bytes a line has from crcMember on.
const sealLen = len(crcMember) + len(`00000000"}`)

// parseSets reads a line, or several of which the ends between them are other bytes. It returns none for one in which
// anything is damaged.
func parseSets(line []byte) (list []set) {
	for len(line) > 0 {
		at := bytes.Index(line, []byte(crcMember))
		if at < 0 || at+sealLen > len(line) {
			return nil
		}
		s, err := parseLine(line[:at+sealLen])
		if err != nil {
			return nil
		}
		list = append(list, s)
		line = line[min(at+sealLen+1, len(line)):]
	}
	return list
}

// parseJournal reads a journal.
func parseJournal(data []byte) (j journal) {
	for n := 1; len(data) > 0; n++ {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		list := parseSets(line)
		if !ended {
			// One that only lost its end was whole when it was acknowledged: what is cut short has no byte behind it.
			if at := bytes.LastIndex(line, []byte(crcMember)); len(list) == 0 || at+sealLen == len(line) {
				break
			}
			j.open = true
		}
		if len(list) == 0 {
			_, err := parseLine(line)
			list = []set{{damaged: fmt.Errorf("line %d: %w", n, err)}}
		}
		j.sets = append(j.sets, list...)
		j.whole += int64(len(line))
		if ended {
			j.whole++
		}
		data = rest
	}
	return j
}

// healthy is what of a journal is not damaged, in lines.
func (j journal) healthy() (data []byte) {
	for _, s := range j.sets {
		if s.damaged == nil {
			data = append(data, s.line()...)
		}
	}
	return data
}

// damage is what is wrong with lines, nil for a journal that is whole.
func (j journal) damage() error {
	var all []error
	for _, s := range j.sets {
		if s.damaged != nil {
			all = append(all, s.damaged)
		}
	}
	const most = 3
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Errorf("and %d more", more))
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrDamaged, errors.Join(all...))
}

// get returns a pointer as far as that is known: with a *DamagedError when a damaged line behind what set it last may have
// set it, too.
func (j journal) get(conversation, bubble string) (Pointer, error) {
	var damaged error
	for _, s := range slices.Backward(j.sets) {
		if s.damaged != nil && damaged == nil {
			damaged = s.damaged
		}
		for _, one := range slices.Backward(s.Set) {
			if one.Bubble != bubble {
				continue
			}
			p := Pointer{conversation, bubble, one.ref, s.Time}
			if damaged != nil {
				return Pointer{}, &DamagedError{Conversation: conversation, Bubble: bubble, Last: p, Err: damaged}
			}
			return p, nil
		}
	}
	if damaged != nil {
		return Pointer{}, &DamagedError{Conversation: conversation, Bubble: bubble, Err: damaged}
	}
	return Pointer{}, NotSet(conversation, bubble)
}

// find returns a pointer as the lines that can be read have it; its Ref is zero when it is not set.
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
