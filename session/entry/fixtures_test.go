package entry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/tidwall/gjson"
)

// parse makes an entry of a line as the session package does, by simpler means.
func parse(raw []byte) Entry {
	r := gjson.ParseBytes(raw)
	e := Envelope{
		Type: TypeName([]byte(r.Get("type").String())), ID: r.Get("id").String(), Parent: r.Get("parentId").String(),
		HasParent: r.Get("parentId").Type == gjson.String,
	}
	e.Time, _ = time.Parse(time.RFC3339, r.Get("timestamp").String())
	return New(raw, e)
}

// chain makes a path of entries "1", "2", ... Each line is "type" or "type members".
func chain(lines ...string) []Entry {
	path := make([]Entry, len(lines))
	for i, l := range lines {
		typ, members, found := bytes.Cut([]byte(l), []byte(" "))
		parent := "null"
		if i > 0 {
			parent = strconv.Quote(strconv.Itoa(i))
		}
		raw := fmt.Sprintf(`{"type":%q,"id":"%d","parentId":%s,"timestamp":"2026-01-02T03:04:05.678Z"`, typ, i+1, parent)
		if found {
			raw += "," + string(members)
		}
		path[i] = parse([]byte(raw + "}"))
	}
	return path
}

func user(s string) string { return fmt.Sprintf(`message "message":{"role":"user","content":%q}`, s) }

// answer makes an assistant turn that calls the tools with these ids.
func answer(ids ...string) string { return ended(StopToolUse, ids...) }

func ended(reason string, ids ...string) string {
	content := `{"type":"text","text":"well"}`
	for _, id := range ids {
		content += fmt.Sprintf(`,{"type":"toolCall","id":%q,"name":"bash","arguments":{}}`, id)
	}
	return fmt.Sprintf(`message "message":{"role":"assistant","content":[%s],"provider":"p","model":"m","stopReason":%q}`, content, reason)
}

func result(id string) string {
	return fmt.Sprintf(`message "message":{"role":"toolResult","toolCallId":%q,"toolName":"bash","content":[],"isError":false}`, id)
}

// sessions returns the real session files, by name.
func sessions(t testing.TB) map[string][][]byte {
	t.Helper()
	dir := os.Getenv("AGENTRUN_TEST_DATA")
	if dir == "" {
		dir, _ = os.Getwd()
		for ; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "shared", "data")); err == nil {
				dir = filepath.Join(dir, "shared", "data")
				break
			}
			if dir == filepath.Dir(dir) {
				t.Skip("real inputs absent: neither AGENTRUN_TEST_DATA nor shared/data above the working directory")
			}
		}
	}
	files, _ := filepath.Glob(filepath.Join(dir, "pi-sessions", "*.jsonl"))
	more, _ := filepath.Glob(filepath.Join(dir, "pi-sessions", "fixtures", "*.jsonl"))
	if files = append(files, more...); len(files) == 0 {
		t.Skip("real inputs absent: no session files in " + dir)
	}
	out := make(map[string][][]byte)
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sc := bufio.NewScanner(bytes.NewReader(data))
		sc.Buffer(nil, len(data)+1)
		for sc.Scan() {
			if json.Valid(sc.Bytes()) {
				out[filepath.Base(name)] = append(out[filepath.Base(name)], bytes.Clone(sc.Bytes()))
			}
		}
	}
	return out
}

// path reads the entries of a real session in the order of the file, migrated.
func path(t testing.TB, lines [][]byte) []Entry {
	t.Helper()
	version := Version
	var m *Migrator
	var entries []Entry
	for i, raw := range lines {
		r := gjson.ParseBytes(raw)
		if r.Get("type").Str == "session" {
			version = int(r.Get("version").Int())
			continue
		}
		if m == nil {
			m = NewMigrator(version)
		}
		raw, err := m.Migrate(i, raw)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, parse(raw))
	}
	return entries
}
