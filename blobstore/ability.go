package blobstore

import (
	"context"
	"io"
	"iter"
	"reflect"
	"time"

	"github.com/agentrun/agentrun/blobref"
)

// Info is what a store knows about a blob without reading it.
type Info struct {
	Ref     blobref.Ref
	Size    int64     // bytes, as the store that answers keeps them
	ModTime time.Time // when the blob was stored; zero where that is not known
}

// Stater is a store that can describe a blob without reading it.
type Stater interface {
	// Stat describes the blob. It does not verify it. Errors match ErrNotFound.
	Stat(ctx context.Context, ref blobref.Ref) (Info, error)
}

// Walker is a store that can list its blobs.
type Walker interface {
	// Walk yields every blob that was there when the iteration began and was
	// not deleted meanwhile, in no promised order; blobs stored meanwhile may be
	// missing. An error may be yielded for one blob, with its Ref in Info, and
	// the walk goes on; an error with a zero Info ends it.
	Walk(ctx context.Context) iter.Seq2[Info, error]
}

// Deleter is a store that can remove blobs. A layer that keeps copies of its own
// implements it, so that none outlives the call.
type Deleter interface {
	// Delete removes the blob. One that is not there is ErrNotFound. Readers
	// that opened it before read it to its end.
	Delete(ctx context.Context, ref blobref.Ref) error
}

// Blob is an open blob. ReadAt may be called concurrently; Read and Seek share
// one position and may not. Close frees it.
type Blob interface {
	io.ReadSeekCloser
	io.ReaderAt
	Size() int64
}

// Opener is a store that can stream a blob in bounded memory.
type Opener interface {
	// Open opens the blob. A Verified store has verified all of it before the
	// first byte is handed out. Errors are those of Get, without ErrTooLarge.
	Open(ctx context.Context, ref blobref.Ref) (Blob, error)
}

// RangeReader is a store that can read a part of a blob for less than all of it.
type RangeReader interface {
	// GetRange returns n bytes from offset off, fewer where the blob ends
	// before, none where it ends at or before off. A negative off or n is an
	// error. Other errors are those of Get; a store that would have to fetch all
	// of the blob to verify it says in its own documentation whether it does.
	GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error)
}

// Putter is a store that hashes a stream while it stores it.
type Putter interface {
	// Put stores what r yields until io.EOF and returns its reference and
	// length. On an error nothing is stored.
	Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error)
}

// BytesPutter is a store that hashes what it is given anyway, and can tell its
// caller the result.
type BytesPutter interface {
	// PutBytes is Set under the reference of data.
	PutBytes(ctx context.Context, data []byte) (blobref.Ref, error)
}

// Moder is a store that knows its mode.
type Moder interface {
	Mode() Mode
}

// Unwrapper is a layer around another store that lets As look through it.
type Unwrapper interface {
	Unwrap() Store
}

// As finds an ability T of s. It asks s first and then, as long as they are
// Unwrappers, the layers below.
//
// Layers below are asked for control only: to list, to describe, to delete. An
// ability that carries the bytes of blobs (Store itself, Opener, RangeReader,
// Putter, BytesPutter, StreamSetter, ExclusiveSetter, and every type that has one of them) counts only when s
// itself has it: an encrypting layer would be looked through to its ciphertext.
// A layer therefore forwards such an ability with a method of its own.
func As[T any](s Store) (T, bool) {
	if found, ok := s.(T); ok {
		return found, true
	}
	var none T
	if carriesBytes(reflect.TypeFor[T]()) {
		return none, false
	}
	for {
		u, ok := s.(Unwrapper)
		if !ok {
			return none, false
		}
		if s = u.Unwrap(); s == nil {
			return none, false
		}
		if found, ok := s.(T); ok {
			return found, true
		}
	}
}

var byteCarriers = [...]reflect.Type{
	reflect.TypeFor[Store](),
	reflect.TypeFor[Opener](),
	reflect.TypeFor[RangeReader](),
	reflect.TypeFor[Putter](),
	reflect.TypeFor[BytesPutter](),
	reflect.TypeFor[StreamSetter](),
	reflect.TypeFor[ExclusiveSetter](),
}

// carriesBytes looks at the method set, not at the name: an interface that a
// caller put together from a Walker and an Opener carries bytes too.
func carriesBytes(t reflect.Type) bool {
	for _, carrier := range byteCarriers {
		if t.Implements(carrier) {
			return true
		}
	}
	return false
}
