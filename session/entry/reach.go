package entry

import "github.com/tidwall/gjson"

// Reach tells a reader who walks a path backwards, from the leaf to the root, how
// far he has to go to build the context at that leaf. The zero value is ready.
//
//	var reach entry.Reach
//	for reach.NeedMessages() {
//		e := ... // the leaf, then each time the parent of the last; stop if there is none
//		path = append(path, e)
//		reach.Visit(e)
//	}
//	slices.Reverse(path)
//
// What was visited then builds the messages that the whole path would. Settings
// may need more of it: see NeedSettings.
type Reach struct {
	anchored bool // the last reset boundary or compaction was seen
	messages bool // complete
	settings bool // complete
	until    string
}

// Visit takes the next entry on the way to the root into account.
func (r *Reach) Visit(e Entry) {
	if !r.anchored {
		switch e.typ {
		case TypeResetBoundary:
			r.anchored, r.messages = true, true
		case TypeCompaction:
			c := e.compaction()
			r.anchored, r.until = true, c.start
			r.messages = c.start == "" || c.start == e.id
		}
	} else if !r.messages && e.id == r.until {
		r.messages = true
	}
	if !r.settings {
		_, r.settings = e.Checkpoint()
	}
	if !e.hasParent {
		r.messages, r.settings = true, true
	}
}

// NeedMessages reports whether entries further up may still be part of the
// context. It is true until the last reset boundary was visited, or the last
// compaction and the first entry that it keeps, or the root.
func (r *Reach) NeedMessages() bool { return !r.messages }

// NeedSettings reports whether entries further up may still set something. It is
// true until a compaction or reset boundary with a checkpoint was visited, or the
// root. Who knows the settings from elsewhere may stop before: see
// [ContextOptions].
func (r *Reach) NeedSettings() bool { return !r.settings }

// keep is what a compaction keeps of the entries before it: those from the nearest
// one with id start on, without that one itself if after is set; none if start is
// "" or not on the path.
type keep struct {
	start string
	after bool
}

func (e Entry) compaction() keep {
	line := text(e.raw)
	// A provider's own replacement history already holds the kept turns.
	remote := gjson.Get(line, "preserveData.openaiRemoteCompaction")
	if str(remote.Get("provider")) != "" && remote.Get("replacementHistory").IsArray() {
		return keep{start: str(gjson.Get(line, "providerReplayThroughEntryId")), after: true}
	}
	return keep{start: str(gjson.Get(line, "firstKeptEntryId"))}
}
