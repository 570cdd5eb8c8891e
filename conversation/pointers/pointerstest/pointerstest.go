// Package pointerstest is the suite that every store of pointers passes.
package pointerstest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/conversation/pointers"
)

// Run runs the suite. open returns a new, empty store each time it is called.
func Run(t *testing.T, open func(t *testing.T) pointers.Pointers) {
	t.Helper()
	s := suite{open}
	t.Run("nothing is set at first", s.testNothing)
	t.Run("what is set is found", s.testSet)
	t.Run("one that is not what its writer thinks is left alone", s.testConflict)
	t.Run("a bubble is apart from the latest state", s.testBubbles)
	t.Run("the history has all that was set, newest first", s.testHistory)
	t.Run("the list has what is set now", s.testList)
	t.Run("what is given up is gone, and nothing else", s.testRemove)
	t.Run("ids that are none are refused", s.testInvalid)
	t.Run("a cancelled context changes nothing", s.testCancelled)
	t.Run("of writers at once none is lost", s.testWriters)
}

type suite struct {
	open func(t *testing.T) pointers.Pointers
}

func ref(n int) blobref.Ref { return blobref.Of(fmt.Appendf(nil, "state %d", n)) }

func mustSet(t *testing.T, p pointers.Pointers, conversation string, changes ...pointers.Change) {
	t.Helper()
	if err := p.CompareAndSet(t.Context(), conversation, changes...); err != nil {
		t.Fatal(err)
	}
}

func wantGet(t *testing.T, p pointers.Pointers, conversation, bubble string, want blobref.Ref) {
	t.Helper()
	got, err := p.Get(t.Context(), conversation, bubble)
	if want.IsZero() {
		if err != nil && !strings.Contains(err.Error(), pointers.Name(conversation, bubble)+" is not set") {
			t.Errorf("Get says %v", err)
		}
		if !errors.Is(err, pointers.ErrNotFound) || got != (pointers.Pointer{}) {
			t.Fatalf("Get(%s, %q) = %v, %v; want ErrNotFound", conversation, bubble, got, err)
		}
		return
	}
	if err != nil || got.Ref != want || got.Conversation != conversation || got.Bubble != bubble || got.Time.IsZero() {
		t.Fatalf("Get(%s, %q) = %v, %v; want %v", conversation, bubble, got, err, want)
	}
}

func (s suite) testNothing(t *testing.T) {
	p := s.open(t)
	wantGet(t, p, "c", "", blobref.Ref{})
	wantGet(t, p, "c", "b", blobref.Ref{})
	for got, err := range p.List(t.Context()) {
		t.Errorf("List yields %v, %v", got, err)
	}
	for got, err := range p.History(t.Context(), "c") {
		t.Errorf("History yields %v, %v", got, err)
	}
}

func (s suite) testSet(t *testing.T) {
	p := s.open(t)
	mustSet(t, p, "c", pointers.Change{New: ref(1)})
	wantGet(t, p, "c", "", ref(1))
	wantGet(t, p, "d", "", blobref.Ref{})
	mustSet(t, p, "c", pointers.Change{Old: ref(1), New: ref(2)})
	wantGet(t, p, "c", "", ref(2))
	before, err := p.Get(t.Context(), "c", "")
	if err != nil {
		t.Fatal(err)
	}
	mustSet(t, p, "c", pointers.Change{Old: ref(2), New: ref(2)}) // which changes nothing
	if after, err := p.Get(t.Context(), "c", ""); err != nil || !after.Time.Equal(before.Time) || after.Ref != ref(2) {
		t.Errorf("what was set to what it is was %v and is %v, %v", before, after, err)
	}
	wantHistory(t, p, "c", ref(2).Hex(), ref(1).Hex())
	var conflict *pointers.ConflictError
	if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: ref(1), New: ref(1)}); !errors.As(err, &conflict) || conflict.Now != ref(2) {
		t.Errorf("setting what is another to itself = %v", err)
	}
	mustSet(t, p, "c", pointers.Change{Old: ref(2), New: ref(2)}, pointers.Change{Bubble: "b", New: ref(2)})
	wantGet(t, p, "c", "b", ref(2))
	wantHistory(t, p, "c", "b"+ref(2).Hex(), ref(2).Hex(), ref(1).Hex())
}

// wantHistory compares a history, each a bubble and a blob.
func wantHistory(t *testing.T, p pointers.Pointers, conversation string, want ...string) {
	t.Helper()
	var got []string
	for one, err := range p.History(t.Context(), conversation) {
		if err != nil || one.Conversation != conversation {
			t.Fatal(one, err)
		}
		got = append(got, one.Bubble+one.Ref.Hex())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("History yields\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (s suite) testConflict(t *testing.T) {
	p := s.open(t)
	for _, old := range []blobref.Ref{ref(1), ref(3)} {
		var conflict *pointers.ConflictError
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: old, New: ref(2)}); !errors.As(err, &conflict) || !errors.Is(err, pointers.ErrConflict) || !conflict.Now.IsZero() {
			t.Fatalf("setting what is not there = %v", err)
		}
		wantGet(t, p, "c", "", blobref.Ref{})
	}
	mustSet(t, p, "c", pointers.Change{New: ref(1)})
	for _, old := range []blobref.Ref{{}, ref(2)} {
		var conflict *pointers.ConflictError
		err := p.CompareAndSet(t.Context(), "c", pointers.Change{Old: old, New: ref(3)}, pointers.Change{Bubble: "b", New: ref(3)})
		if !errors.As(err, &conflict) || conflict.Now != ref(1) || conflict.Conversation != "c" || conflict.Bubble != "" {
			t.Fatalf("setting what is another = %v", err)
		}
		wantGet(t, p, "c", "", ref(1))
		wantGet(t, p, "c", "b", blobref.Ref{})
	}
}

func (s suite) testBubbles(t *testing.T) {
	p := s.open(t)
	mustSet(t, p, "c", pointers.Change{New: ref(1)}, pointers.Change{Bubble: "01a-B_c.d", New: ref(2)})
	wantGet(t, p, "c", "", ref(1))
	wantGet(t, p, "c", "01a-B_c.d", ref(2))
	mustSet(t, p, "c", pointers.Change{Bubble: "01a-B_c.d", Old: ref(2), New: ref(3)})
	wantGet(t, p, "c", "", ref(1))
	wantGet(t, p, "c", "01a-B_c.d", ref(3))
}

func (s suite) testHistory(t *testing.T) {
	p := s.open(t)
	mustSet(t, p, "c", pointers.Change{New: ref(1)})
	mustSet(t, p, "c", pointers.Change{Bubble: "b", New: ref(1)})
	mustSet(t, p, "c", pointers.Change{Old: ref(1), New: ref(2)})
	mustSet(t, p, "other", pointers.Change{New: ref(9)})
	mustSet(t, p, "c", pointers.Change{Old: ref(2), New: ref(1)})
	wantHistory(t, p, "c", ref(1).Hex(), ref(2).Hex(), "b"+ref(1).Hex(), ref(1).Hex())
	// Of what is set together the last one is the newest.
	mustSet(t, p, "d", pointers.Change{New: ref(1)}, pointers.Change{Bubble: "b", New: ref(1)}, pointers.Change{Bubble: "a", New: ref(1)})
	wantHistory(t, p, "d", "a"+ref(1).Hex(), "b"+ref(1).Hex(), ref(1).Hex())
}

func (s suite) testList(t *testing.T) {
	p := s.open(t)
	want := map[pointers.Pointer]bool{}
	for _, c := range []string{"one", "two", "two.x", "tw"} {
		mustSet(t, p, c, pointers.Change{New: ref(1)})
		mustSet(t, p, c, pointers.Change{Old: ref(1), New: ref(2)}, pointers.Change{Bubble: "b1", New: ref(2)})
		mustSet(t, p, c, pointers.Change{Bubble: "b2", New: ref(3)})
		want[pointers.Pointer{Conversation: c, Ref: ref(2)}] = true
		want[pointers.Pointer{Conversation: c, Bubble: "b1", Ref: ref(2)}] = true
		want[pointers.Pointer{Conversation: c, Bubble: "b2", Ref: ref(3)}] = true
	}
	got := map[pointers.Pointer]bool{}
	for one, err := range p.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		one.Time = pointers.Pointer{}.Time
		if got[one] {
			t.Errorf("List yields %v twice", one)
		}
		got[one] = true
	}
	if !maps.Equal(got, want) {
		t.Errorf("List yields %v, want %v", got, want)
	}
}

func (s suite) testRemove(t *testing.T) {
	p := s.open(t)
	r, ok := p.(pointers.Remover)
	if !ok {
		t.Skip("pointers cannot be given up here")
	}
	if err := r.Remove(t.Context(), "c"); !errors.Is(err, pointers.ErrNotFound) {
		t.Errorf("Remove of nothing = %v", err)
	}
	for _, c := range []string{"c", "c.x", "cc"} {
		mustSet(t, p, c, pointers.Change{New: ref(1)}, pointers.Change{Bubble: "b", New: ref(1)})
		mustSet(t, p, c, pointers.Change{Old: ref(1), New: ref(2)}, pointers.Change{Bubble: "b2", New: ref(2)})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Remove(cancelled, "c"); !errors.Is(err, context.Canceled) {
		t.Errorf("Remove = %v, want the context's error", err)
	}
	wantGet(t, p, "c", "", ref(2))
	if err := r.Remove(t.Context(), "../c"); !errors.Is(err, pointers.ErrInvalid) {
		t.Errorf("Remove of no conversation = %v", err)
	}
	if err := r.Remove(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	for _, bubble := range []string{"", "b", "b2"} {
		wantGet(t, p, "c", bubble, blobref.Ref{})
	}
	wantHistory(t, p, "c")
	if err := r.Remove(t.Context(), "c"); !errors.Is(err, pointers.ErrNotFound) {
		t.Errorf("Remove once more = %v", err)
	}
	left := map[string]int{}
	for one, err := range p.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		left[one.Conversation]++
	}
	if want := map[string]int{"c.x": 3, "cc": 3}; !maps.Equal(left, want) {
		t.Errorf("List yields %v, want %v", left, want)
	}
	mustSet(t, p, "c", pointers.Change{New: ref(3)}) // as at first
	mustSet(t, p, "c", pointers.Change{Old: ref(3), New: ref(4)})
	wantGet(t, p, "c", "", ref(4))
	wantHistory(t, p, "c", ref(4).Hex(), ref(3).Hex())
}

func (s suite) testInvalid(t *testing.T) {
	p := s.open(t)
	for _, id := range []string{"", ".", "..", ".hidden", "a/b", "a\\b", "a\x00", "a:b", "a b", "é", strings.Repeat("x", 129), "a\n"} {
		if _, err := p.Get(t.Context(), id, ""); !errors.Is(err, pointers.ErrInvalid) {
			t.Errorf("Get of conversation %q = %v", id, err)
		}
		if err := p.CompareAndSet(t.Context(), id, pointers.Change{New: ref(1)}); !errors.Is(err, pointers.ErrInvalid) {
			t.Errorf("CompareAndSet of conversation %q = %v", id, err)
		}
		if id == "" {
			continue // the latest state
		}
		if _, err := p.Get(t.Context(), "c", id); !errors.Is(err, pointers.ErrInvalid) {
			t.Errorf("Get of bubble %q = %v", id, err)
		}
		if err := p.CompareAndSet(t.Context(), "c", pointers.Change{Bubble: id, New: ref(1)}); !errors.Is(err, pointers.ErrInvalid) {
			t.Errorf("CompareAndSet of bubble %q = %v", id, err)
		}
	}
	for name, changes := range map[string][]pointers.Change{
		"no change":          nil,
		"a change to none":   {{}},
		"the same one twice": {{New: ref(1)}, {New: ref(2)}},
	} {
		if err := p.CompareAndSet(t.Context(), "c", changes...); !errors.Is(err, pointers.ErrInvalid) {
			t.Errorf("CompareAndSet of %s = %v", name, err)
		}
	}
	for one := range p.List(t.Context()) {
		t.Errorf("%v was set", one)
	}
}

func (s suite) testCancelled(t *testing.T) {
	p := s.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.CompareAndSet(ctx, "c", pointers.Change{New: ref(1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("CompareAndSet = %v", err)
	}
	if _, err := p.Get(ctx, "c", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("Get = %v", err)
	}
	wantGet(t, p, "c", "", blobref.Ref{})
}

// testWriters lets writers set one pointer, each what it has seen plus one: in the end every one of them is in the history.
func (s suite) testWriters(t *testing.T) {
	const writers, each = 4, 8
	p := s.open(t)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				mine := ref(1000*(w+1) + i)
				for {
					old, err := p.Get(t.Context(), "c", "")
					if err != nil && !errors.Is(err, pointers.ErrNotFound) {
						t.Error(err)
						return
					}
					err = p.CompareAndSet(t.Context(), "c", pointers.Change{Old: old.Ref, New: mine})
					if err == nil {
						break
					}
					if !errors.Is(err, pointers.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	seen := map[blobref.Ref]int{}
	for one, err := range p.History(t.Context(), "c") {
		if err != nil {
			t.Fatal(err)
		}
		seen[one.Ref]++
	}
	if len(seen) != writers*each {
		t.Errorf("%d of %d checkpoints are in the history", len(seen), writers*each)
	}
	for r, n := range seen {
		if n != 1 {
			t.Errorf("%v was set %d times", r, n)
		}
	}
}
