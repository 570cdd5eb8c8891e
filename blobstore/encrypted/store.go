package encrypted

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Form is how blobs are written. Both forms are read, whatever is written.
type Form uint8

const (
	// Own is the form that the package comment describes. It is the zero value.
	Own Form = iota

	// Seed is the form of agent.v1 clients: a nonce and AES-256-GCM under the
	// SHA-256 of the passphrase. It binds a blob to nothing, takes a guess at the
	// passphrase for the price of a hash, and holds a blob in memory as a whole:
	// for peers that read nothing else.
	Seed
)

// DefaultChunkBytes is how much of a blob is encrypted at a time by default.
const DefaultChunkBytes = 64 << 10

// Options say how blobs are encrypted. The zero value is our own form, verified,
// under plain ids.
type Options struct {
	// Mode Verified, the zero value, holds plaintext against its ref on Set and on
	// Get. Mode Opaque is for ids that are no hashes of the plaintext: what was
	// stored under an id is still proven to be that, in our own form only.
	Mode blobstore.Mode

	// Form is what is written.
	Form Form

	// KeyedIDs hides plaintext ids from the store below: a store that has plain ids
	// turns to keyed ones. One that has keyed ids keeps them, whatever is said here; but
	// its marker says so, and who takes that away is asked for plain ids by those who do
	// not.
	KeyedIDs bool

	// KDF is for passphrases that have no slot in the marker yet; the zero value
	// means DefaultKDF.
	KDF KDF

	// ChunkBytes is a power of two from 4 KiB to 16 MiB; 0 means DefaultChunkBytes.
	ChunkBytes int

	// TempDir is where Put spools streams that cannot be read twice, encrypted under
	// a key that is never written; "" means os.TempDir.
	TempDir string

	// Observer is told of get_blob and set_blob; nil means nobody.
	Observer blobstore.Observer
}

// Store encrypts what it hands to the store below. See the package comment.
type Store struct {
	inner    blobstore.Store
	keys     *Keyring
	opts     Options
	chunkLog byte

	state    atomic.Pointer[state]
	marker   lock // held while the marker is read or written
	surveyed bool // guarded by marker: whether held was found out
	held     bool // guarded by marker: blobs were there without a marker

	// writing is held for an id while a blob is stored under it in mode Opaque, in
	// which Rotate might put what it has read in the place of what is newer.
	writing idLocks
}

var (
	_ blobstore.Store        = (*Store)(nil)
	_ blobstore.Stater       = (*Store)(nil)
	_ blobstore.Walker       = (*Store)(nil)
	_ blobstore.Deleter      = (*Store)(nil)
	_ blobstore.Opener       = (*Store)(nil)
	_ blobstore.RangeReader  = (*Store)(nil)
	_ blobstore.Putter       = (*Store)(nil)
	_ blobstore.BytesPutter  = (*Store)(nil)
	_ blobstore.StreamSetter = (*Store)(nil)
	_ blobstore.Moder        = (*Store)(nil)
	_ blobstore.Unwrapper    = (*Store)(nil)
)

// New returns the layer around inner, which is Opaque: blobstore.ErrMode otherwise. It
// touches nothing; the first call reads the marker of the store, and the first that
// stores a blob makes it.
func New(inner blobstore.Store, keys *Keyring, opts Options) (*Store, error) {
	s, err := newStore(inner, keys, opts)
	if err != nil {
		return nil, fmt.Errorf("encrypting a blob store: %w", err)
	}
	return s, nil
}

func newStore(inner blobstore.Store, keys *Keyring, opts Options) (*Store, error) {
	if opts.KDF == (KDF{}) {
		opts.KDF = DefaultKDF
	}
	if opts.ChunkBytes == 0 {
		opts.ChunkBytes = DefaultChunkBytes
	}
	chunkLog := bits.TrailingZeros(uint(opts.ChunkBytes))
	switch {
	case keys == nil || keys.Len() == 0:
		return nil, errors.New("there is no keyring")
	case blobstore.ModeOf(inner) != blobstore.Opaque:
		return nil, fmt.Errorf("%w: the store below is to hold ciphertext, whose ids are no hashes of it; open it in mode opaque", blobstore.ErrMode)
	case opts.Mode != blobstore.Verified && opts.Mode != blobstore.Opaque:
		return nil, fmt.Errorf("%w: %v", blobstore.ErrMode, opts.Mode)
	case opts.Form != Own && opts.Form != Seed:
		return nil, fmt.Errorf("there is no form %d", opts.Form)
	case opts.Form == Seed && opts.KeyedIDs:
		return nil, errors.New("the seed's form has no place for the id that a keyed one hides; use keyed ids with our own form")
	case opts.ChunkBytes != 1<<chunkLog || chunkLog < minChunkLog || chunkLog > maxChunkLog:
		return nil, fmt.Errorf("chunks of %d bytes: a power of two from %d to %d is needed", opts.ChunkBytes, 1<<minChunkLog, 1<<maxChunkLog)
	}
	if err := opts.KDF.validate(); err != nil {
		return nil, err
	}
	return &Store{inner: inner, keys: keys, opts: opts, chunkLog: byte(chunkLog), marker: newLock()}, nil
}

// IsEncrypted reports whether data begins like what this package writes in its own
// form, or like its marker.
func IsEncrypted(data []byte) bool { return blobstore.IsEncrypted(data) }

// Mode returns the mode that is shown to the layer above.
func (s *Store) Mode() blobstore.Mode { return s.opts.Mode }

// Unwrap returns the store below, which knows ciphertext only.
func (s *Store) Unwrap() blobstore.Store { return s.inner }

// Flush waits for the store below: nothing is put off here.
func (s *Store) Flush(ctx context.Context) error { return s.inner.Flush(ctx) }

func (s *Store) begin(ctx context.Context, name string) (context.Context, blobstore.Span) {
	return blobstore.Begin(ctx, s.opts.Observer, blobstore.Op{Layer: "encrypted", Name: name})
}

// Get returns the plaintext of the blob, decrypted where the ciphertext was. A
// Verified store hashes it, once.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) (data []byte, err error) {
	ctx, span := s.begin(ctx, "get_blob")
	defer func() { span.End(err) }()
	if data, err = s.get(ctx, ref); err != nil {
		return nil, fmt.Errorf("getting %s: %w", ref, err)
	}
	return data, nil
}

func (s *Store) get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	var data []byte
	err := s.at(ctx, ref, func(id blobref.Ref) error {
		sealed, err := s.inner.Get(ctx, id)
		if err == nil {
			data, err = s.open(ctx, ref, sealed)
		}
		return err
	})
	return data, err
}

// at calls do with each id under which the blob may be, until one is there.
func (s *Store) at(ctx context.Context, ref blobref.Ref, do func(id blobref.Ref) error) error {
	if ref.IsZero() {
		return blobstore.ErrNotFound
	}
	st, err := s.look(ctx)
	for err == nil {
		ids, n := st.stored(ref)
		for _, id := range ids[:n] {
			if isMarker(id) {
				return blobstore.ErrNotFound
			}
			err = do(id)
			if errors.Is(err, blobstore.ErrCorrupt) && blobstore.Heal(ctx, s.inner, id) == nil {
				err = do(id) // below, nobody could tell that it was damaged
			}
			if !errors.Is(err, blobstore.ErrNotFound) {
				return err
			}
		}
		newer, nerr := s.lookAnew(ctx, st)
		if nerr != nil {
			return nerr
		}
		if newer == nil {
			return err
		}
		st, err = newer, nil
	}
	return err
}

// open decrypts all of a blob, in place where it can, and verifies what it is.
func (s *Store) open(ctx context.Context, ref blobref.Ref, sealed []byte) ([]byte, error) {
	var plain []byte
	var err error
	if IsEncrypted(sealed) {
		plain, err = s.openOwn(ctx, ref, sealed)
	} else {
		plain, err = s.openSeedIn(ctx, sealed)
	}
	if err != nil {
		return nil, err
	}
	if s.opts.Mode == blobstore.Verified && !ref.Verify(plain) {
		return nil, fmt.Errorf("%w (its plaintext is not what the reference names)", ErrTampered)
	}
	return plain, nil
}

func (s *Store) openOwn(ctx context.Context, ref blobref.Ref, sealed []byte) ([]byte, error) {
	c, err := s.openHeader(ctx, ref, sealed)
	if err != nil {
		return nil, err
	}
	if err := c.complete(int64(len(sealed))); err != nil {
		return nil, err
	}
	return c.openRun(sealed[headerSize:], 0)
}

// openHeader believes the header that sealed begins with, if it is that of ref.
func (s *Store) openHeader(ctx context.Context, ref blobref.Ref, sealed []byte) (contents, error) {
	h, err := parseHeader(sealed)
	if err != nil {
		return contents{}, err
	}
	c, err := h.open(ctx, s)
	if err != nil {
		return contents{}, err
	}
	if c.id != ref {
		return contents{}, fmt.Errorf("%w (it is the blob %s)", ErrTampered, c.id)
	}
	return c, nil
}

// Set stores data under ref, encrypted anew each time: that it is there already is
// not looked for.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.set(ctx, ref, data, s.inner.Set)
}

// SetLocal is Set by SetLocal of the store below. The marker, which holds nothing of
// the blob, is stored by Set where it has to be made.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.set(ctx, ref, data, s.inner.SetLocal)
}

type setter func(ctx context.Context, id blobref.Ref, sealed []byte) error

func (s *Store) set(ctx context.Context, ref blobref.Ref, data []byte, set setter) (err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err = ctx.Err(); err == nil && s.opts.Mode == blobstore.Verified {
		if found := blobref.Of(data); found != ref {
			err = fmt.Errorf("%w (they are %s)", blobstore.ErrMismatch, found)
		}
	}
	if err == nil {
		err = s.store(ctx, ref, data, set)
	}
	if err != nil {
		return fmt.Errorf("storing %s: %w", ref, err)
	}
	return nil
}

// PutBytes stores data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (ref blobref.Ref, err error) {
	ctx, span := s.begin(ctx, "set_blob")
	defer func() { span.End(err) }()
	if err = ctx.Err(); err == nil {
		ref = blobref.Of(data)
		err = s.store(ctx, ref, data, s.inner.Set)
	}
	if err != nil {
		return blobref.Ref{}, fmt.Errorf("storing %d bytes: %w", len(data), err)
	}
	return ref, nil
}

// store encrypts data, which is what ref names if that was to be verified, and hands
// it to set.
func (s *Store) store(ctx context.Context, ref blobref.Ref, data []byte, set setter) error {
	st, id, err := s.target(ctx, ref)
	if err != nil {
		return err
	}
	sealed := s.seal(st, ref, data)
	return s.exclusively(ctx, id, func() error { return set(ctx, id, sealed) })
}

// target returns under which id of the store below a blob is stored.
func (s *Store) target(ctx context.Context, ref blobref.Ref) (*state, blobref.Ref, error) {
	if ref.IsZero() {
		return nil, blobref.Ref{}, fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	}
	st, err := s.ready(ctx, false)
	if err != nil {
		return nil, blobref.Ref{}, err
	}
	ids, _ := st.stored(ref)
	if isMarker(ids[0]) {
		return nil, blobref.Ref{}, fmt.Errorf("%w: it names the marker of encrypted stores", blobref.ErrInvalid)
	}
	return st, ids[0], nil
}

// seal encrypts data in the form that is written.
func (s *Store) seal(st *state, ref blobref.Ref, data []byte) []byte {
	if s.opts.Form == Seed && !st.ids.keyed {
		return s.keys.sealSeed(data)
	}
	size := int64(len(data))
	room := body{size: size, chunk: 1 << s.chunkLog}
	sealed := make([]byte, headerSize, room.sealedSize())
	b := newHeader(sealed, st.writer, ref, size, s.chunkLog, s.flags())
	for i := range b.chunks() {
		from := i * b.chunk
		sealed = b.seal(sealed, data[from:from+b.length(i)], i)
	}
	return sealed
}

func (s *Store) flags() byte {
	if s.opts.Mode == blobstore.Opaque {
		return flagUnverified
	}
	return 0
}

// exclusively runs do while nobody else in this process stores under id, where that
// matters.
func (s *Store) exclusively(ctx context.Context, id blobref.Ref, do func() error) error {
	if s.opts.Mode == blobstore.Verified {
		return do()
	}
	if err := s.writing.acquire(ctx, id); err != nil {
		return err
	}
	defer s.writing.release(id)
	return do()
}
