package diskkv

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// blobPrefix begins the keys of blobs; what follows is the id, 64 hexadecimal digits
// of lower case.
const blobPrefix = "agentKv:blob:"

func blobKey(ref blobref.Ref) string { return blobPrefix + ref.Hex() }

// blobKeys returns the keys under which a blob may be in the file, the better one first:
// other programs may write upper case.
func (x *source) blobKeys(ref blobref.Ref) []string {
	keys := []string{ref.Hex(), strings.ToUpper(ref.Hex())}
	if x.made {
		keys = keys[:1]
	}
	if !x.chat {
		for i := range keys {
			keys[i] = blobPrefix + keys[i]
		}
	}
	return keys
}

// selectBlob is the value of one of blobKeys and its length.
func (x *source) selectBlob() string {
	if x.chat {
		return selectChatBlob
	}
	return selectValue
}

// selectValue is the value of a key and its length, unless that is more than a limit.
const selectValue = "SELECT octet_length(value), CASE WHEN octet_length(value) <= ? THEN value END FROM cursorDiskKV WHERE key = ?"

const (
	insertValue = "INSERT OR IGNORE INTO cursorDiskKV(key, value) VALUES(?, ?)"
	updateValue = "UPDATE cursorDiskKV SET value = ? WHERE key = ?"
	upsertValue = "INSERT INTO cursorDiskKV(key, value) VALUES(?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value"
	deleteValue = "DELETE FROM cursorDiskKV WHERE key = ?"
)

// valueOf returns the value of a key by selectValue, or another form's text for that, or errNoValue: a null is as good as none. One of
// more than limit bytes is blobstore.ErrTooLarge.
func valueOf(ctx context.Context, c *conn, text, key string, limit int64) (value driver.Value, err error) {
	found := false
	err = c.query(ctx, func(v []driver.Value) error {
		size, ok := v[0].(int64)
		if !ok {
			return errEnough // null
		}
		if size > limit {
			return fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, size, limit)
		}
		found, value = true, v[1]
		return errEnough // a row is all there is, and asking costs
	}, text, limit, key)
	if err == nil && !found {
		err = errNoValue
	}
	return value, err
}

// readBlob is valueOf for a blob of the file.
func (s *Store) readBlob(ctx context.Context, ref blobref.Ref, limit int64) (value driver.Value, own bool, err error) {
	err = s.read(ctx, func(src *source, c *conn) (err error) {
		own = src.made
		for _, key := range src.blobKeys(ref) {
			if value, err = valueOf(src.patience(ctx), c, src.selectBlob(), key, limit); !errors.Is(err, errNoValue) {
				break
			}
		}
		return err
	})
	if errors.Is(err, errAbsent) {
		err = errNoValue
	}
	return value, own, err
}

// patience returns the context for a single look at the file. Of a file of our own
// nobody is ever waited for, and a context that can end costs a goroutine.
func (x *source) patience(ctx context.Context) context.Context {
	if x.own {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// Get returns the bytes of ref. Those that a Verified store returns hash to it,
// whichever of the forms of the format they are stored in; where none fits, the error
// is blobstore.ErrCorrupt.
func (s *Store) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := s.get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("getting %s from %s: %w", ref, s.path, err)
	}
	return data, nil
}

func (s *Store) get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	// Text is twice as long as what it says, and may have space around it.
	value, own, err := s.readBlob(ctx, ref, 2*s.opts.MaxBytes+64)
	if errors.Is(err, errNoValue) {
		return nil, blobstore.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	raw, text, err := bytesOf(value)
	if err != nil {
		return nil, err
	}
	data := raw
	switch {
	case s.opts.Mode == blobstore.Verified:
		data, err = decodeVerified(ref, raw)
	case !own:
		data, err = decodeOpaque(ref, raw, text)
	}
	if err == nil && int64(len(data)) > s.opts.MaxBytes {
		err = fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, len(data), s.opts.MaxBytes)
	}
	if !own && s.opts.Mode == blobstore.Verified && errors.Is(err, blobstore.ErrCorrupt) {
		err = fmt.Errorf("%w; if the program that made the file encrypts, open it with ?encrypted=passphrase-file:FILE", err)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Set stores data under ref.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := s.check(ref, data); err != nil {
		return fmt.Errorf("storing %s in %s: %w", ref, s.path, err)
	}
	return s.store(ctx, ref, data)
}

// check holds bytes that are to be stored against their id.
func (s *Store) check(ref blobref.Ref, data []byte) error {
	switch {
	case ref.IsZero():
		return fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	case int64(len(data)) > s.opts.MaxBytes:
		return fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, len(data), s.opts.MaxBytes)
	case s.opts.Mode == blobstore.Verified && !ref.Verify(data):
		return fmt.Errorf("%w (they are %s)", blobstore.ErrMismatch, blobref.Of(data))
	}
	return nil
}

// SetIfAbsent stores data under ref where nothing is.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	err = s.check(ref, data)
	if err == nil {
		value := bytes.Clone(data)
		if s.opts.Mode == blobstore.Verified {
			value = encode(data)
		} else if value == nil {
			value = []byte{} // nil is NULL
		}
		err = s.write(ctx, len(data), func(c *conn) error {
			n, err := c.exec(context.Background(), insertValue, blobKey(ref), value)
			stored = n > 0
			return err
		})
	}
	if err != nil {
		return false, fmt.Errorf("storing %s where nothing is in %s: %w", ref, s.path, err)
	}
	return stored, nil
}

// store stores bytes that were checked.
func (s *Store) store(ctx context.Context, ref blobref.Ref, data []byte) error {
	err := s.write(ctx, len(data), func(c *conn) error { return s.put(c, ref, data) })
	if err != nil {
		return fmt.Errorf("storing %s in %s: %w", ref, s.path, err)
	}
	return nil
}

// put stores bytes in the transaction that is going on.
func (s *Store) put(c *conn, ref blobref.Ref, data []byte) error {
	ctx := context.Background()
	if s.opts.Mode == blobstore.Opaque {
		if data == nil {
			data = []byte{} // nil is NULL
		}
		_, err := c.exec(ctx, upsertValue, blobKey(ref), data)
		return err
	}
	key, value := blobKey(ref), encode(data)
	if n, err := c.exec(ctx, insertValue, key, value); n > 0 || err != nil {
		return err
	}
	// It is there: the right bytes, or others, by damage.
	is, err := valueOf(ctx, c, selectValue, key, int64(len(value)))
	if raw, ok := is.([]byte); err == nil && ok && bytes.Equal(raw, value) {
		return s.settle(c)
	}
	if err != nil && !errors.Is(err, errNoValue) && !errors.Is(err, blobstore.ErrTooLarge) && !errors.Is(err, errDamaged) {
		return err
	}
	_, err = c.exec(ctx, updateValue, value, key)
	return err
}

// settle makes the transaction one that changes something, so that committing it syncs:
// what is acknowledged as being there may have been written without.
func (s *Store) settle(c *conn) error {
	if !s.opts.Sync {
		return nil
	}
	return touch(c)
}

// touch changes the file without changing what it says.
func touch(c *conn) error {
	_, err := c.exec(context.Background(), "PRAGMA user_version = 0")
	return err
}

// SetLocal is Set: nothing here is remote.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

// PutBytes stores data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	if int64(len(data)) > s.opts.MaxBytes {
		return blobref.Ref{}, fmt.Errorf("storing in %s: %w: %d bytes; the limit is %d", s.path, blobstore.ErrTooLarge, len(data), s.opts.MaxBytes)
	}
	ref := blobref.Of(data)
	if err := s.store(ctx, ref, data); err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}

// Put stores what r yields, at most Options.MaxBytes of it: a blob is one value, and
// in memory as a whole.
func (s *Store) Put(ctx context.Context, r io.Reader) (blobref.Ref, int64, error) {
	if err := ctx.Err(); err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream in %s: %w", s.path, err)
	}
	data, err := io.ReadAll(io.LimitReader(r, s.opts.MaxBytes+1))
	if err != nil {
		return blobref.Ref{}, 0, fmt.Errorf("storing a stream in %s: %w", s.path, err)
	}
	ref, err := s.PutBytes(ctx, data)
	if err != nil {
		return blobref.Ref{}, 0, err
	}
	return ref, int64(len(data)), nil
}

// SetStream stores the size bytes that r yields under ref, as a whole and in memory, as
// Put does.
func (s *Store) SetStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	if err := s.setStream(ctx, ref, r, size); err != nil {
		return fmt.Errorf("storing %s in %s from a stream: %w", ref, s.path, err)
	}
	return nil
}

func (s *Store) setStream(ctx context.Context, ref blobref.Ref, r io.Reader, size int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case size < 0:
		return fmt.Errorf("a stream of %d bytes", size)
	case size > s.opts.MaxBytes:
		return fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, size, s.opts.MaxBytes)
	}
	data, err := io.ReadAll(io.LimitReader(r, size+1)) // one more than there may be
	switch {
	case err != nil:
		return err
	case int64(len(data)) < size:
		return fmt.Errorf("the stream has %d bytes, not %d: %w", len(data), size, io.ErrUnexpectedEOF)
	case int64(len(data)) > size:
		return fmt.Errorf("the stream has more than %d bytes", size)
	}
	if err := s.check(ref, data); err != nil {
		return err
	}
	return s.write(ctx, len(data), func(c *conn) error { return s.put(c, ref, data) })
}

// Blob is a blob to store: see SetAll.
type Blob struct {
	Ref  blobref.Ref
	Data []byte
}

// SetAll stores blobs in one transaction: all of them, or, with an error, none. It
// costs less than as many calls of Set.
func (s *Store) SetAll(ctx context.Context, blobs []Blob) error {
	for _, b := range blobs {
		if err := s.check(b.Ref, b.Data); err != nil {
			return fmt.Errorf("storing %s in %s: %w", b.Ref, s.path, err)
		}
	}
	return s.storeAll(ctx, blobs)
}

// PutAll is SetAll under the references of the content of each, which it returns.
func (s *Store) PutAll(ctx context.Context, data [][]byte) ([]blobref.Ref, error) {
	refs, blobs := make([]blobref.Ref, len(data)), make([]Blob, len(data))
	for i, d := range data {
		if int64(len(d)) > s.opts.MaxBytes {
			return nil, fmt.Errorf("storing in %s: %w: %d bytes; the limit is %d", s.path, blobstore.ErrTooLarge, len(d), s.opts.MaxBytes)
		}
		refs[i] = blobref.Of(d)
		blobs[i] = Blob{refs[i], d}
	}
	if err := s.storeAll(ctx, blobs); err != nil {
		return nil, err
	}
	return refs, nil
}

func (s *Store) storeAll(ctx context.Context, blobs []Blob) error {
	if len(blobs) == 0 {
		return nil
	}
	weight := 0
	for _, b := range blobs {
		weight += len(b.Data)
	}
	err := s.write(ctx, weight, func(c *conn) error {
		for _, b := range blobs {
			if err := s.put(c, b.Ref, b.Data); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("storing %d blobs in %s: %w", len(blobs), s.path, err)
	}
	return nil
}

// Flush makes what was acknowledged survive power loss. With Options.Sync it does so already.
func (s *Store) Flush(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("flushing %s: %w", s.path, err)
	}
	if s.opts.Sync || s.opts.ReadOnly {
		return nil
	}
	err := s.sync(ctx)
	if err != nil && !errors.Is(err, errAbsent) {
		return fmt.Errorf("flushing %s: %w", s.path, err)
	}
	return nil
}

func (s *Store) sync(ctx context.Context) error {
	src, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.mu.RUnlock()
	if src.writer == nil {
		return nil
	}
	if err := s.syncName(src); err != nil {
		return err
	}
	return src.writer.sync(ctx)
}

// Delete removes the blob. Whoever has it open has it in memory.
func (s *Store) Delete(ctx context.Context, ref blobref.Ref) error {
	err := s.deleteKey(ctx, blobKey(ref))
	if errors.Is(err, errNoValue) {
		err = blobstore.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("deleting %s from %s: %w", ref, s.path, err)
	}
	return nil
}

func (s *Store) deleteKey(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// A file is not made for having nothing deleted from it.
	if _, err := s.acquire(ctx); errors.Is(err, errAbsent) {
		return errNoValue
	} else if err != nil {
		return err
	}
	s.mu.RUnlock()
	return s.write(ctx, 0, func(c *conn) error {
		n, err := c.exec(context.Background(), deleteValue, key)
		if err == nil && n == 0 {
			err = errNoValue
		}
		return err
	})
}

// Open returns the blob as a stream. A blob is one value, and in memory as a whole, so
// that one of more than Options.MaxBytes is blobstore.ErrTooLarge here, too.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	data, err := s.get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("opening %s in %s: %w", ref, s.path, err)
	}
	return opened{bytes.NewReader(data)}, nil
}

type opened struct{ *bytes.Reader }

func (opened) Close() error { return nil }

// GetRange returns a part of a blob. All of it is read and, in a Verified store,
// verified for that.
func (s *Store) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("getting %d bytes at %d of %s: negative range", n, off, ref)
	}
	data, err := s.get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("getting %d bytes at %d of %s from %s: %w", n, off, ref, s.path, err)
	}
	size := int64(len(data))
	off = min(off, size)
	return bytes.Clone(data[off : off+min(n, size-off)]), nil
}
