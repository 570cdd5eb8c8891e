package catalog

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFileNameIsWhatOhMyPiWrites(t *testing.T) {
	at := time.Date(2026, 11, 20, 21, 17, 7, 977_400_000, time.FixedZone("CET", 3600))
	got, err := FileName(at, "01a1fa9b-0000-7000-8000-000000000000")
	if want := "2026-11-20T20-17-07-977Z_01a1fa9b-0000-7000-8000-000000000000.jsonl"; err != nil || got != want {
		t.Errorf("FileName = %q, %v, want %q", got, err, want)
	}
	for _, id := range []string{"", ".", "..", "-x", "a/b", "a\x00", "a b", "é", strings.Repeat("a", maxIDBytes+1)} {
		if name, err := FileName(at, id); err == nil {
			t.Errorf("id %q made the name %q", id, name)
		}
	}
	if _, err := FileName(at.AddDate(9000, 0, 0), "a"); err == nil {
		t.Error("a year of five digits was accepted")
	}
}

func TestParseFileName(t *testing.T) {
	for _, tt := range []struct {
		name, base, id string
		ok             bool
	}{
		{"a plain log", "2026-11-20T20-17-07-977Z_ab.jsonl", "ab", true},
		{"a cold log", "2026-11-20T20-17-07-977Z_ab.jsonl.zst", "ab", true},
		{"an id may hold an underscore", "2026-11-20T20-17-07-977Z_a_b.jsonl", "a_b", true},
		{"no id", "2026-11-20T20-17-07-977Z_.jsonl", "", false},
		{"no timestamp", "notes.jsonl", "", false},
		{"a sign in the fraction of a second", "2026-11-20T20-17-07-+77Z_a.jsonl", "", false},
		{"a month that is none", "2026-13-20T20-17-07-977Z_ab.jsonl", "", false},
		{"colons", "2026-11-20T20:17:07.977Z_ab.jsonl", "", false},
		{"another ending", "2026-11-20T20-17-07-977Z_ab.jsonl.gz", "", false},
		{"an id that is no file name", "2026-11-20T20-17-07-977Z_a/b.jsonl", "", false},
		{"the ending alone", ".jsonl", "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			created, id, ok := ParseFileName(tt.base)
			if id != tt.id || ok != tt.ok || ok && created != time.Date(2026, 11, 20, 20, 17, 7, 977e6, time.UTC) {
				t.Errorf("ParseFileName(%q) = %v, %q, %v", tt.base, created, id, ok)
			}
		})
	}
}

func TestFileNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(0, 253402300799999).Draw(t, "ms")).UTC()
		id := rapid.StringMatching(`[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}`).Draw(t, "id")
		name, err := FileName(at, id)
		if err != nil {
			t.Fatal(err)
		}
		for _, base := range []string{name, ColdPath(name)} {
			if created, got, ok := ParseFileName(base); !ok || !created.Equal(at) || got != id {
				t.Fatalf("ParseFileName(%q) = %v, %q, %v", base, created, got, ok)
			}
		}
	})
}

func TestFilesBesideALog(t *testing.T) {
	for _, log := range []string{"/d/x.jsonl", "/d/x.jsonl.zst"} {
		dir, ok := ArtifactsDir(log)
		got := []string{dir, LockPath(log), DriverPath(log), IndexPath(log), DamagedPath(log), PlainPath(log), ColdPath(log)}
		want := []string{"/d/x", "/d/x.lock", "/d/x.driver", "/d/x.index", "/d/x.jsonl.damaged", "/d/x.jsonl", "/d/x.jsonl.zst"}
		for i := range want {
			if got[i] != want[i] || !ok {
				t.Errorf("of %s: %q, want %q", log, got[i], want[i])
			}
		}
	}
	for _, odd := range []string{"/d/x.log", ".jsonl", "/d/.jsonl", "/d/.jsonl.zst"} {
		if dir, ok := ArtifactsDir(odd); ok {
			t.Errorf("%s has the artifacts directory %q", odd, dir)
		}
		if PlainPath(odd) != odd || LockPath(odd) != odd+".lock" {
			t.Errorf("of %s: %q, %q", odd, PlainPath(odd), LockPath(odd))
		}
	}
	if IsCold("/d/x.jsonl") || !IsCold("/d/x.jsonl.zst") {
		t.Error("IsCold does not tell the forms apart")
	}
}

func FuzzParseFileName(f *testing.F) {
	for _, s := range []string{"2026-11-20T20-17-07-977Z_ab.jsonl", "2026-11-20T20-17-07-977Z_a.jsonl.zst", "_.jsonl", "2026-02-30T20-17-07-977Z_ab.jsonl", ".jsonl"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, base string) {
		created, id, ok := ParseFileName(base)
		if !ok {
			return
		}
		name, err := FileName(created, id)
		if err != nil || name != base && ColdPath(name) != base {
			t.Errorf("%q parses to %v, %q, which make %q, %v", base, created, id, name, err)
		}
	})
}
