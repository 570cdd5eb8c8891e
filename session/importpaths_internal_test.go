package session

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/internal/record"
)

func sealed(line string) string {
	return string(record.Seal([]byte(strings.TrimSuffix(line, "}")), 0))
}

func TestLinesThatAreNoRecordsOfFilesStayToTheByte(t *testing.T) {
	p, err := newPathMaps([]PathMap{{Old: "/a", New: "/b"}})
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"type":"custom","customType":"agentrun.checkpoint","id":"1","data":{"files":[{"path":"/a/x"},{"path":"/ab"},{"path":7},3]}}`
	for line, want := range map[string]string{
		good:                strings.Replace(good, "/a/x", "/b/x", 1),
		" " + good + "\r\n": strings.Replace(good, "/a/x", "/b/x", 1) + "\n",
		sealed(good):        sealed(strings.Replace(good, "/a/x", "/b/x", 1)),
		good + good:         good + good,
		good[:len(good)-1]:  good[:len(good)-1],
		"":                  "",
		strings.Replace(sealed(good), "/x", "/y", 1):                                                  strings.Replace(sealed(good), "/x", "/y", 1),
		strings.Replace(good, `"custom"`, `"message"`, 1):                                             strings.Replace(good, `"custom"`, `"message"`, 1),
		`{"type":"custom","customType":"agentrun.checkpoint","data":"/a"}`:                            `{"type":"custom","customType":"agentrun.checkpoint","data":"/a"}`,
		`{"type":"custom","customType":"agentrun.checkpoint","data":{"files":"/a"}}`:                  `{"type":"custom","customType":"agentrun.checkpoint","data":{"files":"/a"}}`,
		`{"type":"custom","customType":"other","data":{"files":[{"path":"/a/agentrun.checkpoint"}]}}`: `{"type":"custom","customType":"other","data":{"files":[{"path":"/a/agentrun.checkpoint"}]}}`,
	} {
		if got := string(p.entry([]byte(line))); got != want {
			t.Errorf("%q became %q, want %q", line, got, want)
		}
	}
}

func FuzzMappedLines(f *testing.F) {
	const good = `{"type":"custom","customType":"agentrun.checkpoint","id":"1","data":{"made":[{"path":"/a"}],"files":[{"path":"/a/x"},{"path":"/ab"}]}}`
	f.Add([]byte(good))
	f.Add([]byte(sealed(good)))
	f.Add([]byte(sealed(good) + good + "\n\n" + good[3:]))
	f.Fuzz(func(t *testing.T, log []byte) {
		p, err := newPathMaps([]PathMap{{Old: "/a", New: "/b/c"}})
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := p.copyEntries(&out, bufio.NewReaderSize(bytes.NewReader(log), 64)); err != nil {
			t.Fatal(err)
		}
		before, after := bytes.Split(log, []byte("\n")), bytes.Split(out.Bytes(), []byte("\n"))
		if len(before) != len(after) {
			t.Fatalf("%d lines became %d", len(before), len(after))
		}
		for i, line := range before {
			if bytes.Equal(line, after[i]) {
				continue
			}
			if !p.any() || !ecmajson.Valid(record.Trim(after[i])) || record.Verify(record.Trim(line)) != record.Verify(record.Trim(after[i])) {
				t.Errorf("%q became %q", line, after[i])
			}
		}
	})
}
