// Package storetest is the suite that every blob store passes: a directory, a
// database, a remote service, and every layer around another store.
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func() blobstore.Store { return mystore.New() })
//	}
//
// It holds a store to the contract of package blobstore, in mode Verified or,
// with the option Opaque, in mode Opaque. Abilities that the store has are tested
// against Get, so that a layer cannot forward one past what it does to the bytes;
// abilities that it has not, or answers with blobstore.ErrUnsupported, are reported
// as skipped. A layer (an Unwrapper) fails when it lacks an ability that the store
// below has. RunFaults is the suite of a layer whose store below fails.
package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Option says something about the store that the suite cannot find out.
type Option func(*suite)

// Opaque says that the store is opened in mode blobstore.Opaque.
func Opaque() Option {
	return func(s *suite) { s.mode = blobstore.Opaque }
}

// Reopen adds tests of what outlives a store: reopen closes the store it is given
// and returns another on the same contents.
func Reopen(reopen func(blobstore.Store) blobstore.Store) Option {
	return func(s *suite) { s.reopen = reopen }
}

// Corrupt adds tests of damage, in mode Verified: corrupt overwrites the stored
// bytes of ref behind the back of the store with the given ones.
func Corrupt(corrupt func(s blobstore.Store, ref blobref.Ref, data []byte) error) Option {
	return func(s *suite) { s.corrupt = corrupt }
}

// Largest is the size in bytes of the largest blob that the suite stores; 16 MiB
// unless told.
func Largest(size int) Option {
	return func(s *suite) { s.largest = size }
}

// NotLocal says that the store keeps nothing on this machine: SetLocal refuses with
// blobstore.ErrNotLocal what Set would store.
func NotLocal() Option {
	return func(s *suite) { s.notLocal = true }
}

type suite struct {
	open    func() blobstore.Store
	mode    blobstore.Mode
	reopen  func(blobstore.Store) blobstore.Store
	corrupt func(blobstore.Store, blobref.Ref, []byte) error
	largest int

	notLocal bool
	// For RunFaults.
	opaqueBelow, trustsBelow, realTime bool
}

// Run runs the suite. open returns a new, empty store each time it is called;
// stores that need closing do so in a t.Cleanup of their test.
func Run(t *testing.T, open func() blobstore.Store, opts ...Option) {
	t.Helper()
	s := &suite{open: open, largest: 16 << 20}
	for _, opt := range opts {
		opt(s)
	}
	if m, ok := blobstore.As[blobstore.Moder](open()); ok && m.Mode() != s.mode {
		t.Fatalf("the store says that it is %v, but the suite is run as %v (see storetest.Opaque)", m.Mode(), s.mode)
	}
	tests := []struct {
		name string
		run  func(*testing.T)
	}{
		{"an absent blob is not found", s.testAbsent},
		{"a stored blob comes back", s.testRoundTrip},
		{"a large blob comes back", s.testLarge},
		{"the empty blob is a blob", s.testEmpty},
		{"storing twice is storing once", s.testTwice},
		{"slices belong to the caller", s.testAliasing},
		{"slices handed out stay as they are", s.testHandedOut},
		{"a cancelled context changes nothing", s.testCancelled},
		{"a store without a place on this machine says so", s.testNotLocal},
		{"the zero reference is refused", s.testZeroRef},
		{"a random history agrees with a map", s.testHistory},
		{"writers of one blob do not disturb each other", s.testConcurrentSame},
		{"writers of many blobs do not disturb each other", s.testConcurrentMany},
		{"blobs outlive the store", s.testReopen},
		{"a verified store refuses other bytes", s.testMismatch},
		{"a verified store reports damage and heals", s.testCorrupt},
		{"an opaque store takes any bytes under any id", s.testAnyBytes},
		{"an opaque store replaces atomically", s.testReplaceAtomically},
		{"an opaque store replaces by every way in", s.testReplaceEveryWay},
		{"an opaque store keeps the value an open reader began with", s.testReplaceUnderReader},
		{"Stat describes", s.testStat},
		{"Walk lists", s.testWalk},
		{"Delete removes", s.testDelete},
		{"Open streams", s.testOpen},
		{"GetRange reads parts", s.testGetRange},
		{"Put hashes a stream", s.testPut},
		{"PutBytes hashes bytes", s.testPutBytes},
		{"SetStream stores a stream", s.testSetStream},
		{"of many who store where nothing is one does", s.testSetIfAbsent},
		{"a layer forwards what is below it", s.testForwarding},
	}
	for _, tt := range tests {
		t.Run(tt.name, tt.run)
	}
}

// id returns an id to store data under. An opaque store gets one that is no hash
// of anything.
func (s *suite) id(data []byte) blobref.Ref {
	ref := blobref.Of(data)
	if s.mode == blobstore.Opaque {
		sum := ref.Sum()
		sum[0] ^= 0xff
		ref = blobref.FromSum(sum)
	}
	return ref
}

// set stores data under its id.
func (s *suite) set(t *testing.T, store blobstore.Store, data []byte) blobref.Ref {
	t.Helper()
	ref := s.id(data)
	if err := store.Set(t.Context(), ref, data); err != nil {
		t.Fatalf("Set of %d bytes: %v", len(data), err)
	}
	return ref
}

// wantBlob fails unless Get returns want.
func wantBlob(t *testing.T, store blobstore.Store, ref blobref.Ref, want []byte) {
	t.Helper()
	got, err := store.Get(t.Context(), ref)
	if err != nil {
		t.Fatalf("Get: %v", err)
	}
	if got == nil {
		t.Fatal("Get returned nil beside no error")
	}
	if err := sameBytes(got, want); err != nil {
		t.Fatalf("Get: %v", err)
	}
}

// wantAbsent fails unless Get finds nothing.
func wantAbsent(t *testing.T, store blobstore.Store, ref blobref.Ref) {
	t.Helper()
	got, err := store.Get(t.Context(), ref)
	if !errors.Is(err, blobstore.ErrNotFound) {
		t.Fatalf("Get = %d bytes, %v; want ErrNotFound", len(got), err)
	}
	if got != nil {
		t.Fatalf("Get returned %d bytes beside ErrNotFound", len(got))
	}
}

// sameBytes describes a difference without printing megabytes.
func sameBytes(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	return fmt.Errorf("%d bytes, want %d; they differ from byte %d on", len(got), len(want), n)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// random returns size bytes that are the same in every run.
func random(size int, seed byte) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed, byte(size), byte(size >> 8)}).Read(data)
	return data
}
