package search

import (
	"bytes"
	"strings"

	"github.com/tidwall/gjson"

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

// toldIn returns what an entry says twice with another one. again is set for the later
// of them.
func toldIn(e entry.Entry) (what told, again bool) {
	switch e.Type() {
	case entry.TypeCustom:
		if bytes.Contains(e.Raw(), recordWord) && gjson.GetBytes(e.Raw(), "customType").Str == startType {
			if run := gjson.GetBytes(e.Raw(), "data.run").String(); run != "" {
				return told{"run", run}, false
			}
		}
	case entry.TypeMessage:
		if run := gjson.GetBytes(e.Raw(), "message.details.run"); run.Type == gjson.String && (e.Role() == entry.RoleBashExecution || e.Role() == entry.RolePythonExecution) {
			return told{"run", run.Str}, true
		}
	case entry.TypeTitleChange:
		return told{"title", e.ID()}, false
	case entry.TypeSessionInfo:
		return told{"title", e.Parent()}, true
	}
	return told{}, false
}

// longTitle is the length in bytes from which on the title of a header may be the
// beginning of one that had no room there.
const longTitle = 64

// current reports whether an entry of the session's own log gives the title that the
// session has.
func (o *owner) current(e entry.Entry) bool {
	title, _, ok := e.Title()
	return ok && (title == o.info.Title || len(o.info.Title) >= longTitle && strings.HasPrefix(title, o.info.Title))
}
