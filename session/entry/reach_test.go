package entry

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// back walks from the end of path as far as messages need, and with settings as far
// as these do.
func back(path []Entry, settings bool) []Entry {
	var reach Reach
	i := len(path)
	for i > 0 && (reach.NeedMessages() || settings && reach.NeedSettings()) {
		i--
		reach.Visit(path[i])
	}
	return path[i:]
}

func TestReach(t *testing.T) {
	const checkpoint = `,"agentrun":{"settings":{}}`
	for _, tt := range []struct {
		name               string
		path               []Entry
		messages, settings int // how many entries each needs
	}{
		{"everything without a boundary", chain(user("a"), user("b"), user("c")), 3, 3},
		{"to the last reset boundary", chain(user("a"), `reset_boundary`, user("b"), `reset_boundary`, user("c")), 2, 5},
		{"settings to its checkpoint", chain(user("a"), `reset_boundary "agentrun":{"settings":{}}`, user("b")), 2, 2},
		{"to the first kept entry", chain(user("a"), user("b"), user("c"), `compaction "firstKeptEntryId":"2"`+checkpoint, user("d")), 4, 4},
		{"settings further than messages", chain(user("a"), user("b"), user("c"), `compaction "firstKeptEntryId":"3"`, user("d")), 3, 5},
		{"to the compaction if it keeps nothing", chain(user("a"), user("b"), `compaction "summary":"s"`, user("d")), 2, 4},
		{"to the compaction if it keeps from itself on", chain(user("a"), user("b"), `compaction "firstKeptEntryId":"3"`, user("d")), 2, 4},
		{"everything if the first kept entry is elsewhere", chain(user("a"), user("b"), `compaction "firstKeptEntryId":"9"`, user("d")), 4, 4},
		{"past boundaries within what is kept", chain(user("a"), user("b"), `reset_boundary`, `compaction "firstKeptEntryId":"2"`), 3, 4},
		{"to the end of a replacement history", chain(user("a"), user("b"), user("c"), `compaction "firstKeptEntryId":"1","providerReplayThroughEntryId":"2","preserveData":{"openaiRemoteCompaction":{"provider":"p","replacementHistory":[]}}`), 3, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := len(back(tt.path, false)); got != tt.messages {
				t.Errorf("messages need %d entries, want %d", got, tt.messages)
			}
			if got := len(back(tt.path, true)); got != tt.settings {
				t.Errorf("settings need %d entries, want %d", got, tt.settings)
			}
		})
	}
}

func TestReachEndsAtARoot(t *testing.T) {
	var reach Reach
	reach.Visit(chain(user("a"))[0])
	if reach.NeedMessages() || reach.NeedSettings() {
		t.Error("it wants more than a root")
	}
}

func TestWhatReachVisitsBuildsTheSameContext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		path := genPath(t)
		want := BuildContext(path, ContextOptions{})

		part := back(path, false)
		got := BuildContext(part, ContextOptions{Settings: fold(path[:len(path)-len(part)])})
		if shape(got) != shape(want) || !slices.Equal(got.Repairs, want.Repairs) || got.Compaction != want.Compaction {
			t.Fatalf("of %d entries got %q, of all %d %q", len(part), shape(got), len(path), shape(want))
		}
		if !reflect.DeepEqual(got.Settings, want.Settings) {
			t.Fatalf("settings %+v, want %+v", got.Settings, want.Settings)
		}

		part = back(path, true)
		got = BuildContext(part, ContextOptions{})
		if shape(got) != shape(want) || !reflect.DeepEqual(got.Settings, want.Settings) {
			t.Fatalf("of %d entries for settings got %q %+v, want %q %+v", len(part), shape(got), got.Settings, shape(want), want.Settings)
		}
	})
}
