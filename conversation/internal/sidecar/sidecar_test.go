package sidecar

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// counted is a store that counts what is put into it.
type counted struct {
	*memory.Store
	puts int
}

func (c *counted) put(ctx context.Context, data []byte) (blobref.Ref, error) {
	c.puts++
	return blobstore.Put(ctx, c.Store, data)
}

func turn(i int) Record {
	return Record{ID: blobref.Of([]byte{byte(i), byte(i >> 8), byte(i >> 16)}), Weight: uint64(i%7 + 1), Spans: []Span{{uint64(i), 3}, {uint64(i) + 9, 1}}}
}

func items(t testing.TB, tree Tree, get Get, from, to uint64) (list []Placed) {
	t.Helper()
	for p, err := range tree.Items(t.Context(), get, from, to) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

func TestATreeGivesBackItsItemsInOrderHoweverItWasBuilt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 2, 63, 64, 65, 127, 128, 129, 4095, 4096, 4097, 5000}).Draw(rt, "n")
		last := min(n, rapid.IntRange(0, 3).Draw(rt, "last"))
		s := &counted{Store: memory.New(blobstore.Verified)}
		var b, other Builder
		for i := range n {
			if i < n-last {
				if err := b.Push(t.Context(), s.put, turn(i)); err != nil {
					rt.Fatal(err)
				}
			}
			if err := other.Push(t.Context(), s.put, turn(i)); err != nil {
				rt.Fatal(err)
			}
			if i == n/2 { // a tree on the way changes nothing
				if _, err := b.Tree(t.Context(), s.put, turn(99)); err != nil {
					rt.Fatal(err)
				}
			}
		}
		var tail []Record
		for i := n - last; i < n; i++ {
			tail = append(tail, turn(i))
		}
		for i := range tail {
			tail[i].Count = 1
		}
		tree, err := b.Tree(t.Context(), s.put, tail...)
		if err != nil {
			rt.Fatal(err)
		}
		same, err := other.Tree(t.Context(), s.put)
		if err != nil || tree != same {
			rt.Fatalf("trees of the same items: %v and %v (%v)", tree, same, err)
		}
		got := items(t, tree, s.Get, 0, tree.Weight)
		if len(got) != n {
			rt.Fatalf("%d items of %d", len(got), n)
		}
		at := uint64(0)
		for i, p := range got {
			if w := turn(i); p.ID != w.ID || !slices.Equal(p.Spans, w.Spans) || p.Before != at {
				rt.Fatalf("item %d is %v", i, p)
			}
			at += p.Weight
		}
		if n > 0 {
			i := rapid.IntRange(0, n-1).Draw(rt, "i")
			if r, err := tree.At(t.Context(), s.Get, uint64(i)); err != nil || r.ID != turn(i).ID {
				rt.Fatalf("At(%d) = %v, %v", i, r, err)
			}
			from := rapid.Uint64Range(0, tree.Weight-1).Draw(rt, "from")
			to := rapid.Uint64Range(from+1, tree.Weight).Draw(rt, "to")
			for _, p := range items(t, tree, s.Get, from, to) {
				if p.Before+p.Weight <= from || p.Before >= to {
					rt.Fatalf("[%d, %d) has an item at %d of %d", from, to, p.Before, p.Weight)
				}
			}
		}
	})
}

func TestOneMoreItemCostsOneNodeALevel(t *testing.T) {
	s := &counted{Store: memory.New(blobstore.Verified)}
	var b Builder
	for i := range 100_000 {
		if err := b.Push(t.Context(), s.put, turn(i)); err != nil {
			t.Fatal(err)
		}
	}
	before := s.puts
	tree, err := b.Tree(t.Context(), s.put, turn(100_001))
	if err != nil {
		t.Fatal(err)
	}
	if n := s.puts - before; n > 2*(tree.Level+1) {
		t.Errorf("%d nodes were written for one item of a tree of %d levels", n, tree.Level+1)
	}
}

func TestAMissingNodeIsAHoleAndTheRestIsThere(t *testing.T) {
	s := &counted{Store: memory.New(blobstore.Verified)}
	var b Builder
	for i := range 300 {
		if err := b.Push(t.Context(), s.put, turn(i)); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := b.Tree(t.Context(), s.put)
	if err != nil {
		t.Fatal(err)
	}
	records, err := tree.node(t.Context(), s.Get)
	if err != nil {
		t.Fatal(err)
	}
	lost := records[1]
	get := func(ctx context.Context, id blobref.Ref) ([]byte, error) {
		if id == lost.ID {
			return nil, blobstore.ErrNotFound
		}
		return s.Get(ctx, id)
	}
	n, holes := 0, 0
	for _, err := range tree.Items(t.Context(), get, 0, tree.Weight) {
		var hole *HoleError
		if errors.As(err, &hole) {
			holes++
			if hole.ID != lost.ID || hole.Count != FanOut || !errors.Is(err, blobstore.ErrNotFound) {
				t.Errorf("hole %v", hole)
			}
		} else if err != nil {
			t.Fatal(err)
		} else {
			n++
		}
	}
	if n != 300-FanOut || holes != 1 {
		t.Errorf("%d items and %d holes", n, holes)
	}
}

func TestARootIsReadAsItWasWritten(t *testing.T) {
	r := Root{
		Head: Tree{blobref.Of([]byte("h")), 7, 1, 0}, Body: Tree{blobref.Of([]byte("b")), 1 << 40, 9999, 2},
		Digest: [32]byte{1, 2}, Files: blobref.Of(nil), Open: 3,
	}
	got, err := ParseRoot(r.Append(nil))
	if err != nil || got != r {
		t.Fatalf("%v, %v", got, err)
	}
	files := []File{{"1.bash.log", 12, []blobref.Ref{blobref.Of(nil), r.Files}}, {"empty", 0, nil}}
	back, err := ParseFiles(AppendFiles(nil, files))
	if err != nil || len(back) != 2 || back[0].Name != files[0].Name || !slices.Equal(back[0].Pieces, files[0].Pieces) || back[1].Name != "empty" {
		t.Fatalf("%v, %v", back, err)
	}
}

// FuzzParse reads hostile bytes as each of the messages. What is a node is written
// again as it was read.
func FuzzParse(f *testing.F) {
	f.Add(Root{Body: Tree{blobref.Of(nil), 4, 1, 1}}.Append(nil))
	one := turn(1)
	one.Count = 1
	f.Add(appendNode(nil, 0, []Record{one}))
	f.Add(AppendFiles(nil, []File{{"a", 1, []blobref.Ref{blobref.Of(nil)}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = ParseRoot(data)
		_, _ = ParseFiles(data)
		// A store that answers anything with these bytes is no way to read without end.
		get := func(context.Context, blobref.Ref) ([]byte, error) { return data, nil }
		for level := range 3 {
			tree := Tree{Weight: one.Weight, Count: 1, Level: level}
			n := 0
			for range tree.Items(t.Context(), get, 0, tree.Weight) {
				if n++; n > 1000 {
					t.Fatal("one item is more than a thousand")
				}
			}
		}
		var list []Record
		var level uint64
		_ = fields(data, func(n protowire.Number, v uint64, b []byte) error {
			if n == 1 {
				level = v
			} else if n == 2 {
				r, err := parseRecord(b)
				list = append(list, r)
				return err
			}
			return nil
		})
		if len(list) == 0 || len(list) > FanOut || level > MaxLevel {
			return
		}
		again := appendNode(nil, int(level), list)
		if !bytes.Equal(again, appendNode(nil, int(level), list)) {
			t.Fatal("a node has two forms")
		}
	})
}
