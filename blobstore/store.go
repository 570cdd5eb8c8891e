// Package blobstore says what a store of blobs is: bytes kept under the
// SHA-256 that names them, or, for ciphertext, under an id that came from
// elsewhere.
//
// # The contract
//
// Every implementation, a store or a layer around one, promises what [Store]
// says; package storetest is the suite that holds it to that, and it is open to
// implementations outside this module.
//
//   - A blob is never nil and never half there: Get returns all of its bytes or
//     an error. An absent blob is [ErrNotFound].
//   - In mode [Verified] bytes under a ref are the bytes that the ref names. Set
//     refuses others with [ErrMismatch], and Get reports others that got there
//     by damage as [ErrCorrupt]; it never returns them. In mode [Opaque] nothing
//     is hashed, and the layer above that sees the plaintext verifies.
//   - A slice that was passed in, or handed out, belongs to the caller
//     afterwards: the store neither changes it nor sees later changes to it.
//   - Methods may be called concurrently. Storing equal bytes twice, at once or
//     one after the other, is no error and costs a comparison.
//   - A cancelled context is noticed before anything is changed. A Set that
//     returned an error has stored the whole blob or nothing of it.
//   - When Set returns, the bytes are as safe as the store's own options say:
//     with its caller gone, or with the power gone. A layer that puts work off
//     says so, and Flush waits for it.
//
// Listing, statistics, deletion, streaming and ranges are abilities that a store
// may have: see [As].
package blobstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
)

// Store keeps blobs. See the package comment for what all methods promise.
type Store interface {
	// Get returns the bytes of ref. Errors match ErrNotFound when there is no
	// such blob, and ErrCorrupt when its bytes changed since they were stored.
	Get(ctx context.Context, ref blobref.Ref) ([]byte, error)

	// Set stores data under ref. A Verified store returns an error that matches
	// ErrMismatch, and stores nothing, unless ref names data. An Opaque store
	// replaces what ref held before, atomically: readers see all of the old
	// bytes or all of the new.
	Set(ctx context.Context, ref blobref.Ref, data []byte) error

	// SetLocal is Set that stays on this machine: a layer in front of a remote
	// store does not pass data on. For a store without a remote it is Set.
	SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error

	// Flush waits until everything that earlier calls put off is done. A store
	// that puts nothing off returns nil.
	Flush(ctx context.Context) error
}

var (
	// ErrNotFound means that the store has no blob of that ref.
	ErrNotFound = errors.New("blob not found")

	// ErrCorrupt means that the bytes found are not those that the ref names.
	// Storing the right bytes again heals the blob.
	ErrCorrupt = errors.New("blob is corrupt: its bytes are not those that its name says")

	// ErrMismatch means that the bytes to store are not those that the ref
	// names. Nothing was stored.
	ErrMismatch = errors.New("bytes do not match the blob reference")

	// ErrTooLarge means that a blob is larger than the store was told to load
	// into memory. It can still be streamed: see Opener.
	ErrTooLarge = errors.New("blob is too large to load into memory")

	// ErrUnsupported means that the store, or a store below it, has not the
	// ability that was asked for: see As.
	ErrUnsupported = errors.New("this blob store cannot do that")

	// ErrReadOnly means that the store was opened for reading. Nothing changed.
	ErrReadOnly = errors.New("blob store is open for reading only")

	// ErrNotLocal means that SetLocal was asked of a store that keeps nothing
	// on this machine. Nothing was stored.
	ErrNotLocal = errors.New("blob store keeps nothing on this machine")

	// ErrQueueFull means that a layer that puts work off could not put off more
	// before the context ended. The local copy is stored.
	ErrQueueFull = errors.New("too many blobs wait for the remote store")

	// ErrMode means that what was asked for and the store's Mode exclude each
	// other.
	ErrMode = errors.New("wrong blob store mode")
)

// Mode says whether a store's ids are hashes of what it holds.
type Mode uint8

const (
	// Verified stores bytes under their own SHA-256 and checks it on every
	// write and read. It is the zero value.
	Verified Mode = iota

	// Opaque stores bytes under any id, unchecked: ciphertext under the ref of
	// its plaintext, or ids made by a server.
	Opaque
)

func (m Mode) String() string {
	switch m {
	case Verified:
		return "verified"
	case Opaque:
		return "opaque"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Put stores data under the reference of its content and returns that. A store
// that hashes what it is given anyway (see BytesPutter) does so only once.
func Put(ctx context.Context, s Store, data []byte) (blobref.Ref, error) {
	if p, ok := s.(BytesPutter); ok {
		return p.PutBytes(ctx, data)
	}
	ref := blobref.Of(data)
	if err := s.Set(ctx, ref, data); err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}
