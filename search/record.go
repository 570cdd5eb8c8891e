package search

import (
	"bytes"
	"context"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// Entries that a program of ours wrote for programs say little that a person looks for:
// of these the members below are text, and of others of ours nothing. Ids, hosts and
// checksums are not.
var recordTexts = map[string][]string{
	startType:                  {"data.command"},
	entry.CustomTypeCheckpoint: {"data.name", "data.dirs.#.path", "data.files.#.path"},
	entry.CustomTypeLeaf:       {},
	recordPrefix + "repair":    {},
	recordPrefix + "session":   {},
}

const (
	recordPrefix = "agentrun."
	startType    = recordPrefix + "run.start" // bash.StartType, which is of a floor beside
)

var recordWord = []byte(`"` + recordPrefix)

// appendRecordText appends the text of an entry of ours, and reports whether it is one.
func appendRecordText(dst, raw []byte) ([]byte, bool) {
	if !bytes.Contains(raw, recordWord) {
		return dst, false
	}
	line := string(raw)
	if gjson.Get(line, "type").Str != entry.TypeCustom {
		return dst, false
	}
	paths, ok := recordTexts[gjson.Get(line, "customType").Str]
	if !ok {
		return dst, false
	}
	for _, path := range paths {
		gjson.Get(line, path).ForEach(func(_, v gjson.Result) bool {
			if v.Type == gjson.String {
				dst = append(append(dst, v.Str...), '\n')
			}
			return true
		})
	}
	return dst, true
}

// isFinish reports whether value, the details of an execution, only says how it ended, as
// those of our runs do: ids, counts and checksums.
func isFinish(value []byte) bool { return bytes.HasPrefix(value, []byte(`{"run":"`)) }

// told is what two entries say: the start of a run and its end, or the two titles
// that a rename writes for pi and for oh-my-pi. It is found in the later one; the
// earlier one stands where there is no other, as for a run that was killed.
type told struct{ kind, what string }

// earlier returns what a later entry will say again.
func earlier(e entry.Entry) (told, bool) {
	switch e.Type() {
	case entry.TypeCustom:
		if bytes.Contains(e.Raw(), recordWord) && gjson.GetBytes(e.Raw(), "customType").Str == startType {
			run := gjson.GetBytes(e.Raw(), "data.run").String()
			return told{"run", run}, run != ""
		}
	case entry.TypeTitleChange:
		return told{"title", e.ID()}, true
	}
	return told{}, false
}

// later returns what an entry says again.
func later(e entry.Entry) (told, bool) {
	switch e.Type() {
	case entry.TypeMessage:
		if run := gjson.GetBytes(e.Raw(), "message.details.run"); run.Type == gjson.String && e.Role() == entry.RoleBashExecution {
			return told{"run", run.Str}, true
		}
	case entry.TypeSessionInfo:
		return told{"title", e.Parent()}, true
	}
	return told{}, false
}

// twice takes hits out that a later hit of the same log repeats.
type twice struct {
	hits    *[]Hit
	waiting map[told]waiting
	until   int64 // where in the log nothing is waited for any more
}

// waiting is a hit that may be repeated: its place in hits, and that of its entry.
type waiting struct {
	at  int
	off int64
}

// add appends a hit in e.
func (t *twice) add(e entry.Entry, h Hit) {
	t.saw(e)
	if what, ok := earlier(e); ok {
		if t.waiting == nil {
			t.waiting = map[told]waiting{}
		}
		t.waiting[what] = waiting{len(*t.hits), e.Offset()}
		t.until = e.Offset() + maxAhead
	}
	*t.hits = append(*t.hits, h)
}

// saw notes that e is, or would be, a hit.
func (t *twice) saw(e entry.Entry) {
	what, ok := later(e)
	if !ok {
		return
	}
	w, ok := t.waiting[what]
	if !ok || e.Offset() > w.off+maxAhead {
		return
	}
	delete(t.waiting, what)
	*t.hits = slices.Delete(*t.hits, w.at, w.at+1)
	for what, x := range t.waiting {
		if x.at > w.at {
			x.at--
			t.waiting[what] = x
		}
	}
}

// maxAhead is how far behind the start of a run its end is looked for, in bytes. What
// ends further away is found twice.
const maxAhead = 1 << 20

// lookAhead looks behind the stretch that was searched for what its hits wait for.
func (p *plan) lookAhead(ctx context.Context, t *text, from int64, seen *twice) error {
	if len(seen.waiting) == 0 {
		return nil
	}
	return t.log.Lines(ctx, from, max(from, seen.until+1), func(line []byte, at int64) bool {
		for what := range seen.waiting {
			if !bytes.Contains(line, []byte(what.what)) {
				continue
			}
			for _, e := range session.LineEntries(line, at, 0) {
				if p.admits(e) {
					seen.saw(e)
				}
			}
			break
		}
		return len(seen.waiting) > 0
	})
}
