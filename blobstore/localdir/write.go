package localdir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// Set stores data under ref. A Verified store hashes data first and refuses what
// ref does not name. An Opaque store replaces what ref held.
func (s *Store) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if s.opts.Mode == blobstore.Verified {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("storing %s: %w", ref, err)
		}
		if found := blobref.Of(data); found != ref {
			return fmt.Errorf("storing %s: %w (they are %s)", ref, blobstore.ErrMismatch, found)
		}
	}
	if ref.IsZero() {
		return fmt.Errorf("storing %d bytes: %w: the zero reference names no blob", len(data), blobref.ErrInvalid)
	}
	return s.settle(ctx, &incoming{ref: ref, size: int64(len(data)), data: data})
}

// SetIfAbsent stores data under ref where nothing is.
func (s *Store) SetIfAbsent(ctx context.Context, ref blobref.Ref, data []byte) (stored bool, err error) {
	in := &incoming{ref: ref, size: int64(len(data)), data: data}
	defer func() {
		if in.temp != "" {
			_ = s.fsys.Remove(in.temp)
		}
		if err != nil {
			err = fmt.Errorf("storing %s where nothing is: %w", ref, err)
		}
	}()
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case s.opts.Mode == blobstore.Verified && !ref.Verify(data):
		return false, fmt.Errorf("%w (they are %s)", blobstore.ErrMismatch, blobref.Of(data))
	case ref.IsZero():
		return false, fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	}
	if err := s.stage(in); err != nil {
		return false, err
	}
	return s.publish(in, absent)
}

// SetLocal is Set: nothing here is remote.
func (s *Store) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

// PutBytes stores data under the reference of its content.
func (s *Store) PutBytes(ctx context.Context, data []byte) (blobref.Ref, error) {
	ref := blobref.Of(data)
	if err := s.settle(ctx, &incoming{ref: ref, size: int64(len(data)), data: data}); err != nil {
		return blobref.Ref{}, err
	}
	return ref, nil
}

// incoming is a blob on its way in. Its bytes are in data or, already, in a
// temporary of the store's directory.
type incoming struct {
	ref    blobref.Ref
	size   int64
	data   []byte
	temp   string           // "" until there is one
	file   durable.Identity // of temp, once it is complete
	synced bool             // temp has been fsynced
}

// state is what a blob's name stands for, seen from an incoming blob.
type state int

const (
	absent  state = iota
	present       // the same bytes
	differs       // other bytes
)

// settle makes the name of in stand for its bytes, whatever is there and whoever
// else is at it. No temporary is left, whatever happens, unless removing it fails
// or the process dies.
func (s *Store) settle(ctx context.Context, in *incoming) (err error) {
	defer func() {
		if in.temp != "" {
			// What matters is known already: a leftover is only space.
			_ = s.fsys.Remove(in.temp)
		}
		if err != nil {
			err = fmt.Errorf("storing %s: %w", in.ref, err)
		}
	}()
	for range maxTries {
		if err := ctx.Err(); err != nil {
			return err
		}
		found, err := s.compare(ctx, in)
		if err != nil {
			return err
		}
		if found == present {
			return nil
		}
		if err := s.stage(in); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		done, err := s.publish(in, found)
		if done || err != nil {
			return err
		}
		// Another publisher was faster: compare with what it put there.
	}
	return fmt.Errorf("gave up after %d attempts: others keep changing %s", maxTries, s.path(in.ref))
}

// compare looks at what stands under the name of in. In mode Verified other bytes
// are damage: they are moved aside, and the name is absent. In a directory that is not ours
// they may be worth more than what comes in, and it is refused.
func (s *Store) compare(ctx context.Context, in *incoming) (state, error) {
	f, err := s.fsys.OpenFile(s.path(in.ref), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return absent, nil
	}
	if err != nil {
		return absent, hint(err)
	}
	defer f.Close()
	id, err := f.Identify()
	if err != nil {
		return absent, err
	}
	same, err := s.same(ctx, in, f, id.Size)
	switch {
	case err != nil:
		return absent, err
	case same && s.opts.Sync:
		if err := s.ensureSynced(in.ref, f, id); err != nil {
			return absent, err
		}
		return s.claim(in.ref, f, id)
	case same:
		return s.claim(in.ref, f, id)
	case s.opts.Mode == blobstore.Opaque:
		return differs, nil
	}
	err = s.setAside(ctx, in.ref, f)
	switch {
	case errors.Is(err, errChanged):
		err = nil // where the name is taken again, the publish will find that out
	case errors.Is(err, errNotOurs):
		err = fmt.Errorf("%w: %s has other bytes, and another program made the directory: they may be its ciphertext (then open it with ?encrypted=passphrase-file:FILE); if they are damage, remove the file", blobstore.ErrMode, s.path(in.ref))
	}
	return absent, err
}

func (s *Store) same(ctx context.Context, in *incoming, f durable.File, size int64) (bool, error) {
	if size != in.size {
		return false, nil
	}
	var other durable.File // the incoming bytes, where they are in a file
	if in.data == nil && in.temp != "" {
		var err error
		if other, err = s.fsys.OpenFile(in.temp, os.O_RDONLY, 0); err != nil {
			return false, err
		}
		defer other.Close()
	}
	stored := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(stored)
	for off := int64(0); off < size; off += chunkSize {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		length := int(min(chunkSize, size-off))
		n, err := readFullAt(f, stored[:length], off)
		if err != nil || n < length {
			return false, err
		}
		if other == nil {
			if !bytes.Equal(stored[:n], in.data[off:off+int64(n)]) {
				return false, nil
			}
			continue
		}
		if same, err := holdsAt(other, stored[:n], off); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// holdsAt reports whether f holds want at offset off.
func holdsAt(f io.ReaderAt, want []byte, off int64) (bool, error) {
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	n, err := readFullAt(f, buf[:len(want)], off)
	return err == nil && bytes.Equal(buf[:n], want), err
}

// ensureSynced makes a file that was there already as durable as one that this
// store wrote: its writer may have been less careful. It changes nothing that can
// be seen.
func (s *Store) ensureSynced(ref blobref.Ref, f durable.File, id durable.Identity) error {
	if s.synced.has(ref, id) {
		return nil
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return err
	}
	s.synced.add(ref, id)
	return nil
}

// stage writes the bytes of in to a temporary, and fsyncs it, as far as that is
// not done yet.
func (s *Store) stage(in *incoming) error {
	if in.temp == "" {
		f, err := s.createTemp()
		if err != nil {
			return err
		}
		in.temp = f.Name()
		_, err = f.Write(in.data)
		if err := s.finish(in, f, err); err != nil {
			return err
		}
	}
	if !s.opts.Sync || in.synced {
		return nil
	}
	f, err := s.fsys.OpenFile(in.temp, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return s.finish(in, f, nil)
}

// finish closes a temporary that is written; with Sync it is fsynced before and
// identified. err is what writing it came to.
func (s *Store) finish(in *incoming, f durable.File, err error) error {
	if err == nil && s.opts.Sync {
		err = f.Sync()
	}
	if err == nil && s.opts.Sync {
		in.file, err = f.Identify()
		in.synced = err == nil
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// createTemp makes a temporary, and the directory where it is not there, or no
// longer.
func (s *Store) createTemp() (durable.File, error) {
	if err := s.prepare(); err != nil {
		return nil, err
	}
	f, err := durable.CreateTemp(s.fsys, s.dir, "blob")
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	s.ready.Store(false)
	if err := s.prepare(); err != nil {
		return nil, err
	}
	return durable.CreateTemp(s.fsys, s.dir, "blob")
}

// publish gives the temporary its name. done is false when the name was taken
// meanwhile.
func (s *Store) publish(in *incoming, found state) (done bool, err error) {
	if found == differs {
		err = s.fsys.Rename(in.temp, s.path(in.ref))
	} else {
		err = s.fsys.RenameNoReplace(in.temp, s.path(in.ref))
	}
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	in.temp = ""
	if !s.opts.Sync {
		return true, nil
	}
	if err := s.fsys.SyncDir(s.dir); err != nil {
		return false, fmt.Errorf("syncing the directory of a blob that is there: %w", err)
	}
	s.synced.add(in.ref, in.file)
	return true, nil
}
