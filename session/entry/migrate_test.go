package entry

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"pgregory.net/rapid"
)

func migrate(t *testing.T, version int, lines ...string) []string {
	t.Helper()
	m := NewMigrator(version)
	out := make([]string, len(lines))
	for i, l := range lines {
		raw, err := m.Migrate(i+2, []byte(l))
		if err != nil {
			t.Fatal(err)
		}
		out[i] = string(raw)
	}
	return out
}

func TestMigrateVersion1(t *testing.T) {
	got := migrate(t, 0,
		`{"type":"message","timestamp":"t","message":{"role":"user","content":"\u0041 <"}}`,
		`{ "timestamp" : "t", "type" : "custom" }`,
		`{"timestamp":"t"}`,
		`{}`,
		`{"type":"compaction","summary":"s","firstKeptEntryIndex":2,"tokensBefore":1}`,
		`{"type":"compaction","firstKeptEntryIndex":0}`,
		`{"type":"compaction","firstKeptEntryIndex":9}`,
		`{"type":"custom","firstKeptEntryIndex":1}`,
		`{"type":"message","message":{"role":"hookMessage","content":"hookMessage"}}`,
	)
	// The ids are frozen: parents and labels that programs wrote elsewhere name them.
	want := []string{
		`{"type":"message","id":"ID0","parentId":null,"timestamp":"t","message":{"role":"user","content":"\u0041 <"}}`,
		`{"timestamp":"t","type":"custom","id":"ID1","parentId":"ID0"}`,
		`{"timestamp":"t","id":"ID2","parentId":"ID1"}`,
		`{"id":"ID3","parentId":"ID2"}`,
		`{"type":"compaction","id":"ID4","parentId":"ID3","summary":"s","firstKeptEntryId":"ID1","tokensBefore":1}`,
		`{"type":"compaction","id":"ID5","parentId":"ID4","firstKeptEntryId":"ID0"}`,
		`{"type":"compaction","id":"ID6","parentId":"ID5","firstKeptEntryIndex":9}`,
		`{"type":"custom","id":"ID7","parentId":"ID6","firstKeptEntryIndex":1}`,
		`{"type":"message","id":"ID8","parentId":"ID7","message":{"role":"custom","content":"hookMessage"}}`,
	}
	ids := []string{"c35c1960"}
	var replace []string
	for i, raw := range got {
		id := gjson.Get(raw, "id").String()
		if i < len(ids) && id != ids[i] {
			t.Errorf("line %d has id %q, want %q", i, id, ids[i])
		}
		replace = append(replace, "ID"+string(rune('0'+i)), id)
	}
	names := strings.NewReplacer(replace...)
	for i := range want {
		if w := names.Replace(want[i]); got[i] != w {
			t.Errorf("line %d:\n got %s\nwant %s", i, got[i], w)
		}
	}
}

func TestMigrateKeepsIdsThatAreThere(t *testing.T) {
	got := migrate(t, 1,
		`{"type":"custom","id":"a"}`,
		`{"type":"custom","id":"b","parentId":null}`,
		`{"type":"custom","id":7,"parentId":"a"}`,
		`{"type":"custom","id":"a"}`,
	)
	if got[0] != `{"type":"custom","id":"a","parentId":null}` || got[1] != `{"type":"custom","id":"b","parentId":null}` {
		t.Errorf("got %s", got[:2])
	}
	third := gjson.Get(got[2], "id").String()
	if len(third) != 8 || gjson.Get(got[2], "parentId").String() != "a" {
		t.Errorf("got %s", got[2])
	}
	if id := gjson.Get(got[3], "id").String(); id == "a" || gjson.Get(got[3], "parentId").String() != third {
		t.Errorf("the second entry of one id became %s", got[3])
	}
}

func TestMigrateVersion2(t *testing.T) {
	same := `{"type":"message","id":"1","parentId":null,"message":{"role":"user","content":"hookMessage"}}`
	got := migrate(t, 2,
		`{"type":"message","id":"1", "message" : {"content":"x","role" : "hookMessage"} }`,
		`{"type":"message","message":{"role":"\u0068ookMessage"}}`,
		`{"type":"custom","message":{"role":"hookMessage"}}`,
		same,
	)
	want := []string{
		`{"type":"message","id":"1", "message" : {"content":"x","role" : "custom"} }`,
		`{"type":"message","message":{"role":"custom"}}`,
		`{"type":"custom","message":{"role":"hookMessage"}}`,
		same,
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("line %d:\n got %s\nwant %s", i, got[i], want[i])
		}
	}
}

func TestMigrateLeavesVersion3Alone(t *testing.T) {
	for _, version := range []int{3, 4} {
		raw := []byte(`{"type":"message","message":{"role":"hookMessage"}}`)
		got, err := NewMigrator(version).Migrate(2, raw)
		if err != nil || &got[0] != &raw[0] {
			t.Errorf("version %d: got %s, %v", version, got, err)
		}
	}
}

func TestMigrateRefusesWhatIsNoObject(t *testing.T) {
	for _, raw := range []string{"", "null", "7", `"x"`, "[]"} {
		if got, err := NewMigrator(1).Migrate(2, []byte(raw)); err == nil {
			t.Errorf("%s became %s", raw, got)
		}
	}
}

func TestMigratedIdsStayAsTheFileGrows(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{`{"type":"custom"}`, `{"type":"custom","data":1}`, `{"type":"label"}`}), 1, 20).Draw(rt, "lines")
		all := migrate(t, 1, lines...)
		n := rapid.IntRange(0, len(lines)).Draw(rt, "n")
		seen := map[string]bool{}
		for i, raw := range migrate(t, 1, lines[:n]...) {
			if raw != all[i] {
				rt.Fatalf("line %d was %s, is %s", i, raw, all[i])
			}
		}
		for _, raw := range all {
			id := gjson.Get(raw, "id").String()
			if seen[id] {
				rt.Fatalf("id %s twice", id)
			}
			seen[id] = true
		}
	})
}

func TestRealVersion1Sessions(t *testing.T) {
	if testing.Short() {
		t.Skip("reads all recordings; run without -short")
	}
	n := 0
	for name, lines := range sessions(t) {
		if gjson.GetBytes(lines[0], "type").Str != "session" || gjson.GetBytes(lines[0], "version").Exists() {
			continue
		}
		n++
		t.Run(name, func(t *testing.T) {
			m, again := NewMigrator(1), NewMigrator(0)
			parent := ""
			for i, raw := range lines[1:] {
				got, err := m.Migrate(i, raw)
				if err != nil {
					t.Fatal(err)
				}
				if !json.Valid(got) {
					t.Fatalf("line %d became %s", i, got)
				}
				if twice, _ := again.Migrate(i, raw); string(twice) != string(got) {
					t.Fatalf("line %d is migrated in two ways", i)
				}
				e := parse(got)
				if e.ID() == "" || e.Parent() != parent || e.HasParent() != (i > 0) {
					t.Fatalf("line %d: id %q, parent %q, want parent %q", i, e.ID(), e.Parent(), parent)
				}
				parent = e.ID()
				// Nothing else changed.
				var was, is map[string]json.RawMessage
				if json.Unmarshal(raw, &was) != nil || json.Unmarshal(got, &is) != nil || len(is) != len(was)+2 {
					t.Fatalf("line %d has %d members, had %d", i, len(is), len(was))
				}
				for k, v := range was {
					if string(is[k]) != string(v) {
						t.Fatalf("line %d: member %s changed", i, k)
					}
				}
			}
		})
	}
	if n == 0 {
		t.Skip("real inputs absent: no session of version 1")
	}
}
