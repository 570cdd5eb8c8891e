package main

import "testing"

func TestASearchNamesTheIndexWhenItWillNotMakeItItself(t *testing.T) {
	for _, tt := range []struct {
		name string
		left int64
		want string
	}{
		{"nothing is left", 0, ""},
		{"what is left is indexed behind the answer", 10 * indexRate, ""},
		{"more is left", 10*indexRate + 1, "agentrun search --reindex makes the index (about 11 s), searches take milliseconds then"},
		{"a gigabyte", 1 << 30, "agentrun search --reindex makes the index (about 86 s), searches take milliseconds then"},
	} {
		if got := reindexing(tt.left); got != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
}
