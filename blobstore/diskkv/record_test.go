package diskkv_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

var (
	noRef        = blobref.Ref{}
	refA, refB   = blobref.Of([]byte("a")), blobref.Of([]byte("b"))
	conversation = "3f0c2b1e-8f9d-4b6e-9d58-0f8c6a1f7a11"
)

func temp(t testing.TB) string { return filepath.Join(t.TempDir(), "state.vscdb") }

func TestAPointerIsChangedOnlyByThoseWhoKnowIt(t *testing.T) {
	ctx, s := t.Context(), open(t, temp(t), diskkv.Options{})
	if _, err := s.Checkpoint(ctx, conversation); !errors.Is(err, diskkv.ErrNoRecord) {
		t.Errorf("Checkpoint of nothing = %v", err)
	}
	before := time.Now().Truncate(time.Millisecond)
	for _, step := range []struct {
		name     string
		bubble   string
		old, new blobref.Ref
		is       blobref.Ref // in a conflict
		conflict bool
	}{
		{name: "a first one where none is", old: noRef, new: refA},
		{name: "a second first one", old: noRef, new: refB, is: refA, conflict: true},
		{name: "a change from another", old: refB, new: refA, is: refA, conflict: true},
		{name: "a change", old: refA, new: refB},
		{name: "a change to what is there", old: refB, new: refB},
		{name: "the pointer of a bubble is another one", bubble: "7c21", old: noRef, new: refA},
		{name: "a removal", old: refB, new: noRef},
		{name: "a removal of nothing", old: noRef, new: noRef},
		{name: "a removal of what is gone", old: refB, new: noRef, conflict: true},
	} {
		var err error
		if step.bubble == "" {
			err = s.SetCheckpoint(ctx, conversation, step.old, step.new)
		} else {
			err = s.SetBubbleCheckpoint(ctx, conversation, step.bubble, step.old, step.new)
		}
		var conflict *diskkv.ConflictError
		if step.conflict {
			if !errors.Is(err, diskkv.ErrConflict) || !errors.As(err, &conflict) || conflict.Is.Ref != step.is {
				t.Errorf("%s: %v, want a conflict with %v", step.name, err, step.is)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
	if _, err := s.Checkpoint(ctx, conversation); !errors.Is(err, diskkv.ErrNoRecord) {
		t.Errorf("Checkpoint after its removal = %v", err)
	}
	p, err := s.BubbleCheckpoint(ctx, conversation, "7c21")
	if err != nil || p.Ref != refA || p.Time.Before(before) || p.Time.After(time.Now()) {
		t.Errorf("BubbleCheckpoint = %+v, %v", p, err)
	}
	var history []string
	for p, err := range s.History(ctx, conversation) {
		if err != nil || p.Conversation != conversation || p.Time.Before(before) {
			t.Errorf("History yielded %+v, %v", p, err)
		}
		history = append(history, fmt.Sprintf("%s %.10s", p.Bubble, p.Ref.Hex()))
	}
	short := func(bubble string, ref blobref.Ref) string { return fmt.Sprintf("%s %.10s", bubble, ref.Hex()) }
	if diff := cmp.Diff([]string{short("", refA), short("", refB), short("7c21", refA), short("", noRef)}, history); diff != "" {
		t.Error(diff)
	}
	for p, err := range s.History(ctx, "another") {
		t.Errorf("the history of another conversation: %+v, %v", p, err)
	}
}

func TestChangesOfPointersAreMadeTogetherOrNotAtAll(t *testing.T) {
	ctx, s := t.Context(), open(t, temp(t), diskkv.Options{})
	both := []diskkv.Change{
		{Conversation: conversation, New: refA},
		{Conversation: conversation, Bubble: "m1", Old: refB, New: refA},
	}
	if err := s.SetCheckpoints(ctx, both...); !errors.Is(err, diskkv.ErrConflict) {
		t.Fatalf("SetCheckpoints = %v, want ErrConflict", err)
	}
	for p, err := range s.Checkpoints(ctx) {
		t.Errorf("half of the changes was made: %+v, %v", p, err)
	}
	both[1].Old = noRef
	if err := s.SetCheckpoints(ctx, both...); err != nil {
		t.Fatal(err)
	}
	want := []string{conversation + " ", conversation + " m1"}
	if got := pointers(t, s); !slices.Equal(got, want) {
		t.Errorf("Checkpoints yielded %q, want %q", got, want)
	}
	if err := s.SetCheckpoints(ctx); err != nil {
		t.Errorf("no changes: %v", err)
	}
}

func pointers(t *testing.T, s *diskkv.Store) (list []string) {
	t.Helper()
	for p, err := range s.Checkpoints(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		list = append(list, p.Conversation+" "+p.Bubble)
	}
	return list
}

func TestIDsThatWouldReachOtherKeysAreRefused(t *testing.T) {
	ctx, s := t.Context(), open(t, temp(t), diskkv.Options{})
	for _, id := range []string{"", "a:b", ":", "a\x00b", "a\nb", "\x7f", "\xff", strings.Repeat("x", 257)} {
		_, checkpoint := s.Checkpoint(ctx, id)
		_, bubble := s.BubbleCheckpoint(ctx, "c", id)
		_, metadata := s.Metadata(ctx, id)
		_, state := s.ComposerState(ctx, id)
		var history error
		for _, history = range s.History(ctx, id) {
			continue
		}
		for name, err := range map[string]error{
			"Checkpoint": checkpoint, "BubbleCheckpoint": bubble, "Metadata": metadata, "ComposerState": state, "History": history,
			"SetCheckpoint":       s.SetCheckpoint(ctx, id, noRef, refA),
			"SetBubbleCheckpoint": s.SetBubbleCheckpoint(ctx, "c", id, noRef, refA),
			"SetCheckpoints":      s.SetCheckpoints(ctx, diskkv.Change{Conversation: "c", New: refA}, diskkv.Change{Conversation: id, New: refA}),
			"RemoveCheckpoint":    s.RemoveCheckpoint(ctx, id, ""),
			"SetMetadata":         s.SetMetadata(ctx, id, nil),
			"SetComposerState":    s.SetComposerState(ctx, id, nil),
		} {
			if !errors.Is(err, diskkv.ErrID) {
				t.Errorf("%s(%q) = %v, want ErrID", name, id, err)
			}
		}
	}
	if got := pointers(t, s); len(got) > 0 {
		t.Errorf("pointers were stored: %q", got)
	}
}

func TestPointersOfAnotherProgramAreRead(t *testing.T) {
	path := temp(t)
	foreign(t, path, nil)
	insert := func(key string, value any) {
		t.Helper()
		if err := execute(t, path, "INSERT INTO cursorDiskKV VALUES(?, ?)", key, value); err != nil {
			t.Fatal(err)
		}
	}
	insert("agentKv:checkpoint:one", refA.Hex())
	insert("agentKv:checkpoint:two", " "+strings.ToUpper(refB.Hex())+"\n")
	insert("agentKv:checkpoint:none", nil)
	insert("agentKv:checkpoint:short", "abcd")
	insert("agentKv:checkpoint:zero", strings.Repeat("0", 64))
	insert("agentKv:checkpoint:long", strings.Repeat("0", 4096))
	insert("agentKv:checkpoint:", refA.Hex())
	insert("agentKv:bubbleCheckpoint:one:m1", []byte(refB.Hex()))
	insert("agentKv:bubbleCheckpoint:one", refB.Hex())
	insert("agentKv:bubbleCheckpoint:one:m:1", refB.Hex())
	insert("bc-1:cloudAgent:metadata", base64.StdEncoding.EncodeToString([]byte("\xff\xfe meta")))
	insert("bc-2:cloudAgent:metadata", "*")
	insert("composerData:one", `{"a":1,"conversationState":"~","b":{"conversationState":"~AA=="}}`)
	insert("composerData:two", `{"conversationState":"~AA==","ConversationState":"~AQ==","conversationState":"00ff"}`)
	insert("composerData:three", []byte(`{"conversationState":"~_-8"}`))
	insert("composerData:four", `{"conversationState":null}`)
	insert("composerData:five", `{"conversationState":"~*"}`)
	insert("composerData:six", `{"conversationState":"~AA=="`)
	insert("composerData:seven", `[]`)
	insert("composerData:eight", `{"conversationState":12}`)

	ctx, s := t.Context(), open(t, path, diskkv.Options{})
	for id, want := range map[string]struct {
		ref blobref.Ref
		err error
	}{
		"one": {ref: refA}, "two": {ref: refB}, "none": {err: diskkv.ErrNoRecord}, "absent": {err: diskkv.ErrNoRecord},
		"short": {err: blobstore.ErrCorrupt}, "zero": {err: blobstore.ErrCorrupt}, "long": {err: blobstore.ErrTooLarge},
	} {
		if p, err := s.Checkpoint(ctx, id); p.Ref != want.ref || !errors.Is(err, want.err) || !p.Time.IsZero() {
			t.Errorf("Checkpoint(%s) = %+v, %v; want %+v", id, p, err, want)
		}
	}
	if p, err := s.BubbleCheckpoint(ctx, "one", "m1"); err != nil || p.Ref != refB {
		t.Errorf("BubbleCheckpoint = %+v, %v", p, err)
	}
	var good, bad []string
	for p, err := range s.Checkpoints(ctx) {
		if err != nil {
			bad = append(bad, p.Conversation)
		} else {
			good = append(good, p.Conversation+" "+p.Bubble)
		}
	}
	if diff := cmp.Diff([]string{"one ", "two ", "one m1"}, good); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"long", "short", "zero", "one", "one:m:1"}, bad); diff != "" {
		t.Error(diff)
	}
	if data, err := s.Metadata(ctx, "bc-1"); err != nil || string(data) != "\xff\xfe meta" {
		t.Errorf("Metadata = %q, %v", data, err)
	}
	if data, err := s.Metadata(ctx, "bc-2"); !errors.Is(err, blobstore.ErrCorrupt) {
		t.Errorf("Metadata = %q, %v; want ErrCorrupt", data, err)
	}
	for id, want := range map[string]struct {
		state string
		err   error
	}{
		"one": {}, "two": {state: "\x00\xff"}, "three": {state: "\xff\xef"}, "four": {err: diskkv.ErrNoRecord},
		"five": {err: blobstore.ErrCorrupt}, "six": {err: blobstore.ErrCorrupt}, "seven": {err: blobstore.ErrCorrupt}, "eight": {err: blobstore.ErrCorrupt},
		"nine": {err: diskkv.ErrNoRecord},
	} {
		if state, err := s.ComposerState(ctx, id); string(state) != want.state || !errors.Is(err, want.err) {
			t.Errorf("ComposerState(%s) = %q, %v; want %+v", id, state, err, want)
		}
	}
}

func TestRecordsComeBackAsTheyWereStored(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(t.TempDir(), "state.vscdb")
		s := open(t, path, diskkv.Options{})
		ctx := t.Context()
		data := rapid.SliceOf(rapid.Byte()).Draw(rt, "data")
		id := rapid.StringMatching(`[a-zA-Z0-9 _%'"*.-]{1,40}`).Draw(rt, "id")
		ref := blobref.Of([]byte(id)) // not of data
		if err := errors.Join(s.SetMetadata(ctx, id, data), s.SetComposerState(ctx, id, []byte("older")), s.SetComposerState(ctx, id, data), s.SetUnverified(ctx, ref, data)); err != nil {
			rt.Fatal(err)
		}
		for _, opts := range []diskkv.Options{{}, {ReadOnly: true}} {
			s := open(t, path, opts)
			metadata, merr := s.Metadata(ctx, id)
			state, serr := s.ComposerState(ctx, id)
			unverified, uerr := s.GetUnverified(ctx, ref)
			if err := errors.Join(merr, serr, uerr); err != nil {
				rt.Fatal(err)
			}
			for name, got := range map[string][]byte{"metadata": metadata, "state": state, "unverified": unverified} {
				if !bytes.Equal(got, data) {
					rt.Errorf("%s came back as %q, was %q", name, got, data)
				}
			}
		}
	})
}

func TestBytesThatOnlyAServerVouchesForAreKeptApart(t *testing.T) {
	ctx, s := t.Context(), open(t, temp(t), diskkv.Options{})
	data := []byte("what the server holds under the id of something else")
	if _, err := s.GetUnverified(ctx, refA); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("GetUnverified of nothing = %v", err)
	}
	if err := s.SetUnverified(ctx, refA, data); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(ctx, refA); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of unverified bytes = %q, %v", got, err)
	}
	if info, err := s.Stat(ctx, refA); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Stat of unverified bytes = %+v, %v", info, err)
	}
	for info, err := range s.Walk(ctx) {
		t.Errorf("Walk yielded unverified bytes: %+v, %v", info, err)
	}
	if err := s.Set(ctx, refB, []byte("b")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.GetUnverified(ctx, refB); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("GetUnverified of a verified blob = %q, %v", got, err)
	}
	if got, err := s.GetUnverified(ctx, refA); err != nil || !bytes.Equal(got, data) {
		t.Errorf("GetUnverified = %q, %v", got, err)
	}
	if err := s.Delete(ctx, refA); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Delete of unverified bytes = %v", err)
	}
	if err := s.DeleteUnverified(ctx, refA); err != nil {
		t.Error(err)
	}
	if _, err := s.GetUnverified(ctx, refA); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("GetUnverified of what was deleted = %v", err)
	}
	if err := s.SetUnverified(ctx, noRef, data); !errors.Is(err, blobref.ErrInvalid) {
		t.Errorf("SetUnverified under the zero reference = %v", err)
	}
	wantSound(t, s)
}

func TestWhatWasChangedBehindTheStoreIsNotBelieved(t *testing.T) {
	for name, change := range map[string]string{
		"another id":             "UPDATE cursorDiskKV SET value = '" + refB.Hex() + "' WHERE key = 'agentKv:checkpoint:c'",
		"another name":           "UPDATE cursorDiskKV SET key = 'agentKv:checkpoint:d' WHERE key = 'agentKv:checkpoint:c'",
		"no checksum":            "DELETE FROM cursorDiskKV WHERE key = 'agentrun:note:agentKv:checkpoint:c'",
		"another time":           "UPDATE cursorDiskKV SET value = replace(value, ' 1', ' 2') WHERE key = 'agentrun:note:agentKv:checkpoint:c'",
		"no pointer":             "DELETE FROM cursorDiskKV WHERE key = 'agentKv:checkpoint:c'",
		"other unverified bytes": "UPDATE cursorDiskKV SET value = x'00' WHERE key = 'agentrun:unverified:" + refA.Hex() + "'",
		"another history":        "UPDATE cursorDiskKV SET value = replace(value, 'a', 'b') WHERE key LIKE 'agentrun:history:%'",
		"other metadata":         "UPDATE cursorDiskKV SET value = 'AAAA' WHERE key = 'bc:cloudAgent:metadata'",
		"another state":          "UPDATE cursorDiskKV SET value = '{}' WHERE key = 'composerData:c'",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, path := t.Context(), temp(t)
			s := open(t, path, diskkv.Options{})
			if err := errors.Join(s.SetCheckpoint(ctx, "c", noRef, refA), s.SetUnverified(ctx, refA, []byte("bytes")), s.SetMetadata(ctx, "bc", []byte("m")), s.SetComposerState(ctx, "c", []byte("s"))); err != nil {
				t.Fatal(err)
			}
			wantSound(t, s)
			if err := execute(t, path, change); err != nil {
				t.Fatal(err)
			}
			found := 0
			for f, err := range s.Verify(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				if found++; !errors.Is(f.Err, blobstore.ErrCorrupt) {
					t.Errorf("Verify found %+v", f)
				}
			}
			if found == 0 {
				t.Error("Verify found nothing")
			}
			p, err := s.Checkpoint(ctx, "c")
			data, uerr := s.GetUnverified(ctx, refA)
			if err == nil && p.Ref != refA || uerr == nil && string(data) != "bytes" {
				t.Errorf("what was changed was handed out: %+v, %q", p, data)
			}
			// What is damaged can be removed, and written anew.
			if err := errors.Join(s.RemoveCheckpoint(ctx, "c", ""), s.SetCheckpoint(ctx, "c", noRef, refB)); err != nil {
				t.Error(err)
			}
			if p, err := s.Checkpoint(ctx, "c"); err != nil || p.Ref != refB {
				t.Errorf("Checkpoint = %+v, %v", p, err)
			}
		})
	}
}
