package session_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// TestAForkBelievesTheLogAlone is about what was once derived from a log, and about logs
// that a count of lines, or a strict reader, would stumble over: the fork has what the
// log has.
func TestAForkBelievesTheLogAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("forks a log of 3,000 entries in fourteen states; run without -short")
	}
	var lines strings.Builder
	parent := ""
	for i := range 3000 {
		id := fmt.Sprintf("e%d", i)
		lines.WriteString(foreignMsg(id, parent, strings.Repeat("word ", 80)))
		parent = id
	}
	cites := func(id, parent string, n int) string {
		return logLine(id, parent, strings.Replace(answers("x", "out"), `"isError"`, fmt.Sprintf(`"details":{"meta":{"truncation":{"artifactId":"%d"}}},"isError"`, n), 1))
	}
	lines.WriteString(cites("c1", parent, 4))
	whole := foreignHeader + lines.String()
	for _, tt := range []struct {
		name string
		log  string // as it is then, by another program
		hurt func(index []byte) []byte
	}{
		{"with the index of it", whole, nil},
		{"with a line more than the index knows", whole + cites("c2", "c1", 9), nil},
		{"with a line fewer", whole[:len(whole)-len(cites("c1", parent, 4))], nil},
		{"with half of what the index knows", whole[:strings.LastIndexByte(whole[:len(whole)/2], '\n')+1], nil},
		{"with other lines of the same length", strings.ReplaceAll(whole, `"artifactId":"4"`, `"artifactId":"7"`), nil},
		{"with a turn that was interrupted, and went on", whole + cites("c2", "c1", 9)[:120] + "\n" + foreignMsg("f", "c1", "go on"), nil},
		{"with a line twice", whole + cites("c2", "c1", 9) + cites("c2", "c1", 9), nil},
		{"with an id twice", whole + foreignMsg("c1", "e2999", "another"), nil},
		{"with floating numbers, and such as no double is", whole + logLine("n", "c1", `token_count "used_percent":0.1,"limit":12345678901234567890,"more":1e400`), nil},
		{"with types that nobody knows", whole + logLine("n", "c1", `novel "ordinal":4621`) + logLine("o", "n", `novel "ordinal":4621`), nil},
		{"without its index", whole, func([]byte) []byte { return nil }},
		{"with an empty index", whole, func([]byte) []byte { return []byte{} }},
		{"with an index that was cut", whole, func(b []byte) []byte { return b[:len(b)/2] }},
		{"with an index of which a byte changed", whole, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newManager(t, session.Options{Durability: session.Flush})
			path := writeLog(t, m, "s.jsonl", whole)
			index := strings.TrimSuffix(path, "jsonl") + "index"
			// All that can be derived is.
			s := reopen(t, m, path)
			must(s.Context(t.Context()))
			must(s.MaxArtifactID(t.Context()))
			s.Close()
			kept, err := os.ReadFile(index)
			if err != nil {
				t.Fatal(err)
			}
			must(m.List(t.Context(), ""))
			f := must(os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)) // the same file, as its index has it
			must(f.WriteString(tt.log))
			f.Close()
			if tt.hurt != nil {
				if kept = tt.hurt(kept); kept == nil {
					err = os.Remove(index)
				} else {
					err = os.WriteFile(index, kept, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}

			// What a home that never saw it makes of the log.
			fresh := newManager(t, session.Options{})
			want := reopen(t, fresh, writeLog(t, fresh, "s.jsonl", tt.log))
			fork, forked := forkOf(t, m, path, session.ForkOptions{})
			data := must(os.ReadFile(forked.Path))
			if got := string(data[bytes.IndexByte(data, '\n')+1:]); got != strings.TrimPrefix(tt.log, foreignHeader) {
				t.Errorf("the fork has %d bytes of entries, the log %d", len(got), len(tt.log)-len(foreignHeader))
			}
			if got := ids(t, fork); !slices.Equal(got, ids(t, want)) {
				t.Errorf("the fork has %d entries, the log %d", len(got), len(ids(t, want)))
			}
			if got := contextIDs(t, fork); !slices.Equal(got, contextIDs(t, want)) {
				t.Errorf("the context has %d messages, that of the log %d", len(got), len(contextIDs(t, want)))
			}
			if got, max := must(fork.MaxArtifactID(t.Context())), must(want.MaxArtifactID(t.Context())); got != max {
				t.Errorf("the highest artifact is %d, that of the log %d", got, max)
			}
			// At an entry it is the log as it was then.
			at, _ := forkOf(t, m, path, session.ForkOptions{At: "e1000"})
			if got := ids(t, at); len(got) != 1001 || got[1000] != "e1000" {
				t.Errorf("at e1000 it has %d entries", len(got))
			}
			again, _ := forkOf(t, m, forked.Path, session.ForkOptions{PathOnly: true})
			if got := contextIDs(t, again); !slices.Equal(got, contextIDs(t, want)) {
				t.Errorf("the fork of the fork has %d messages in its context", len(got))
			}
		})
	}
}
