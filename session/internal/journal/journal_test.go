package journal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

const header = `{"type":"session","version":3,"id":"s","cwd":"/new","pad":"  "}`

func valid(home string) Journal {
	return Journal{
		Version: Version, ID: "s", CWD: "/new", PID: 1, Host: "h", Begun: time.Unix(0, 0).UTC(),
		From: "/elsewhere/a.jsonl", To: filepath.Join(home, "sessions", "-new", "a.jsonl"),
		Header: &Header{At: 0, Old: []byte(strings.Replace(header, "/new", "/old", 1)), New: []byte(header)},
	}
}

func TestAJournalIsThereAsLongAsItsMove(t *testing.T) {
	home := t.TempDir()
	if Any(durable.OS, home) {
		t.Fatal("a home without moves has some")
	}
	j := valid(home)
	if err := j.Write(durable.OS, home); err != nil {
		t.Fatal(err)
	}
	all, bad := All(durable.OS, home)
	if len(all) != 1 || len(bad) != 0 || all[0].From != j.From || string(all[0].Header.New) != header {
		t.Fatalf("%+v, %v", all, bad)
	}
	if err := j.Remove(durable.OS, home); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Again(durable.OS, home); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the end: %v", err)
	}
	if Any(durable.OS, home) {
		t.Error("the directory is left")
	}
}

func TestAJournalThatNobodyWroteIsRefused(t *testing.T) {
	const home = "/home"
	for name, change := range map[string]func(*Journal){
		"a newer version":             func(j *Journal) { j.Version++ },
		"no session":                  func(j *Journal) { j.ID = "" },
		"a relative path":             func(j *Journal) { j.From = "a.jsonl" },
		"a path that leads up":        func(j *Journal) { j.To = home + "/sessions/-new/../../a.jsonl" },
		"a place outside of the home": func(j *Journal) { j.To = "/etc/-new/a.jsonl" },
		"another name":                func(j *Journal) { j.To = home + "/sessions/-new/b.jsonl" },
		"no log":                      func(j *Journal) { j.From, j.To = "/x/a", home+"/sessions/-new/a" },
		"a header of another length":  func(j *Journal) { j.Header.Old = j.Header.Old[1:] },
		"a header of another session": func(j *Journal) { j.ID = "t" },
		"a header of another place":   func(j *Journal) { j.CWD = "/x" },
		"no header":                   func(j *Journal) { j.Header.New = j.Header.Old[:0]; j.Header.Old = nil },
		"two lines":                   func(j *Journal) { j.Header.Old[0] = '\n' },
		"an offset before the file":   func(j *Journal) { j.Header.At = -1 },
		"copied and written over":     func(j *Journal) { j.Copied = true },
		"staged without a copy":       func(j *Journal) { j.Staged = true },
	} {
		t.Run(name, func(t *testing.T) {
			j := valid(home)
			change(&j)
			data, err := json.Marshal(j)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Parse(home, data); err == nil {
				t.Errorf("it is read as %+v", got)
			}
		})
	}
	data, err := json.Marshal(valid(home))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(home, data); err != nil {
		t.Errorf("the one that these are changes of: %v", err)
	}
}

func TestWhatACrashLeftOfAJournalIsRemovedLater(t *testing.T) {
	home := t.TempDir()
	temp := filepath.Join(Dir(home), ".tmp-x.json-1")
	if err := errors.Join(os.Mkdir(Dir(home), 0o700), os.WriteFile(temp, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if all, bad := All(durable.OS, home); len(all)+len(bad) != 0 {
		t.Errorf("%v %v", all, bad)
	}
	if _, err := os.Stat(temp); err != nil {
		t.Errorf("its writer may live: %v", err)
	}
	if err := os.Chtimes(temp, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	All(durable.OS, home)
	if Any(durable.OS, home) {
		t.Error("it is left")
	}
}

func FuzzParse(f *testing.F) {
	data, _ := json.Marshal(valid("/home"))
	f.Add(data)
	f.Add([]byte(`{"version":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := Parse("/home", data)
		if err != nil {
			return
		}
		for _, dir := range []string{filepath.Dir(j.To), filepath.Dir(j.StagingDir())} {
			if !strings.HasPrefix(dir, "/home/sessions/") || strings.Contains(dir, "..") && filepath.Clean(dir) != dir {
				t.Errorf("%q is read, and %s would be written to", data, dir)
			}
		}
		again, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse("/home", again); err != nil {
			t.Errorf("%s is read, and %s is not: %v", data, again, err)
		}
	})
}
