package bundle

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/session"
)

// DefaultMaxBytes is what a bundle may unpack to if nothing else is said. Reading a
// bomb to there takes seconds and writes nothing.
const DefaultMaxBytes = 16 << 30

// ImportOptions say how a bundle comes in. The zero value is right for programs.
type ImportOptions struct {
	// Passphrase of an encrypted bundle.
	Passphrase string
	// Map rewrites paths of the session, see session.ImportOptions.
	Map []session.PathMap
	// MaxBytes is what the bundle may unpack to; 0 means DefaultMaxBytes.
	MaxBytes int64
	// Progress is told how much was read of what is to be read: the bundle, as often as
	// that is. It may be nil.
	Progress func(done, total int64)
}

// Result is what an import came to.
type Result struct {
	session.Imported
	Entries   int
	Artifacts int
	Blobs     int
	Missing   []Missing // what had not come along when the bundle was made
}

// Import brings the session of a bundle into the home of m. r is read twice, or three
// times to see what a path map fits, from its beginning, and must not change meanwhile.
func Import(ctx context.Context, m *session.Manager, r io.ReadSeeker, o ImportOptions) (Result, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	in := &importer{m: m, r: r, o: o}
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return Result{}, fmt.Errorf("importing a bundle, which is read twice and so must be a file: %w", err)
	}
	in.total = 2 * size
	if o.Passphrase != "" {
		if in.unlock, err = newUnlocker(o.Passphrase); err != nil {
			return Result{}, err
		}
	}
	if err := in.verify(ctx); err != nil {
		if ctx.Err() != nil {
			return Result{}, err
		}
		return Result{}, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	if err := in.checkMap(ctx); err != nil {
		return Result{}, err
	}
	return in.unpack(ctx)
}

// importer reads one bundle.
type importer struct {
	m      *session.Manager
	r      io.ReadSeeker
	o      ImportOptions
	unlock *unlocker
	found  *content

	done, total int64
}

// open begins a reading of the bundle.
func (in *importer) open() (*archive, error) {
	if _, err := in.r.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(in, 1<<20)
	if err := sniff(r, in.unlock != nil); err != nil {
		return nil, err
	}
	return openArchive(r, in.unlock, in.o.MaxBytes)
}

// Read reads the bundle and tells how far it is.
func (in *importer) Read(p []byte) (int, error) {
	n, err := in.r.Read(p)
	in.done += int64(n)
	if in.o.Progress != nil && n > 0 {
		in.o.Progress(in.done, max(in.total, in.done))
	}
	return n, err
}

func (in *importer) verify(ctx context.Context) error {
	a, err := in.open()
	if err != nil {
		return err
	}
	defer a.close()
	if in.found, err = verify(ctx, a); err != nil {
		return err
	}
	return in.roomFor(a.total)
}

// checkMap refuses path maps that fit nothing. All logs are looked at only when the
// beginning of the session's own is not enough.
func (in *importer) checkMap(ctx context.Context) error {
	if len(in.o.Map) == 0 {
		return nil
	}
	check, err := session.NewMapCheck(in.o.Map)
	if err != nil {
		return err
	}
	if err := check.Log(bytes.NewReader(in.found.head)); err != nil || check.Err() == nil {
		return err
	}
	in.total += in.total / 2
	err = in.each(ctx, func(k kind, rel string, _ int64, r io.Reader) error {
		if k == kindLog || k == kindArtifact && session.NestedLog(rel) {
			return check.Log(r)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return check.Err()
}

// roomFor refuses a bundle that the disk has no room for.
func (in *importer) roomFor(bytes int64) error {
	free, ok := freeBytes(in.m.Home())
	if ok && bytes > free {
		return fmt.Errorf("it unpacks to %s, and %s has room for %s: free some space, or name another home with --home",
			outputsink.FormatBytes(bytes), in.m.Home(), outputsink.FormatBytes(free))
	}
	return nil
}

// freeBytes is the room on the file system of dir, or of the first directory above it
// that is there.
func freeBytes(dir string) (int64, bool) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if err == nil {
			return int64(min(st.Bavail*uint64(st.Bsize), 1<<62)), true
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, unix.ENOENT) || parent == dir {
			return 0, false
		}
		dir = parent
	}
}

// unpack writes what was verified.
func (in *importer) unpack(ctx context.Context) (_ Result, err error) {
	im, err := in.m.BeginImport(ctx, in.found.head, session.ImportOptions{Map: in.o.Map})
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if cerr := im.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("cleaning up after an import that is done: %w", cerr)
		}
	}()
	if err := in.admit(ctx); err != nil {
		return Result{}, err
	}
	if in.found.hasBlobs() {
		// No collector takes them before the log that cites them is there.
		release, err := in.m.LeaseBlobs()
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = release() }() // one that stays costs the collector a look
	}
	if err := in.stage(ctx, im); err != nil {
		return Result{}, err
	}
	made, err := im.Publish(ctx)
	if err != nil {
		return Result{}, err
	}
	l := in.found.manifest
	return Result{Imported: made, Entries: l.Entries, Artifacts: l.Artifacts, Blobs: l.Blobs, Missing: l.Missing}, nil
}

// smallFile is up to where a file is held in memory, so that the next one is read
// while it is written.
const smallFile = 4 << 20

// stage hands every member to where it goes.
func (in *importer) stage(ctx context.Context, im *session.Import) error {
	var writers errgroup.Group
	writers.SetLimit(workers)
	spare := make(chan []byte, workers+1) // memory of files that are written
	err := in.each(ctx, func(k kind, rel string, size int64, r io.Reader) error {
		switch k {
		case kindLog:
			return im.Log(r)
		case kindDamaged:
			return im.Damaged(r)
		case kindArtifact:
			if size > smallFile {
				return im.Artifact(rel, r)
			}
			var data []byte
			select {
			case data = <-spare:
			default:
			}
			data = slices.Grow(data[:0], int(size))[:size]
			if _, err := io.ReadFull(r, data); err != nil {
				return err
			}
			writers.Go(func() error {
				err := im.SmallArtifact(rel, data)
				select {
				case spare <- data:
				default:
				}
				return err
			})
		case kindBlob:
			return in.blob(ctx, rel, r)
		}
		return nil
	})
	if werr := writers.Wait(); err == nil {
		err = werr
	}
	return err
}

// admit asks the quotas of the home, before anything is written.
func (in *importer) admit(ctx context.Context) error {
	var log, kept, cited int64
	stater, _ := blobstore.As[blobstore.Stater](in.m.Blobs())
	quota := in.m.Quota()
	if quota == nil {
		return nil
	}
	for _, m := range in.found.manifest.Members {
		switch k, rel, _ := parseName(m.Name); k {
		case kindLog:
			log = m.Bytes
		case kindArtifact:
			kept += m.Bytes
		case kindBlob:
			fresh := true
			if ref, err := blobref.ParseHex(rel); err == nil && stater != nil {
				_, err := stater.Stat(ctx, ref)
				fresh = err != nil
			}
			if err := quota.Blob(cited, m.Bytes, fresh); err != nil {
				return fmt.Errorf("importing its blobs: %w", err)
			}
			cited += m.Bytes
		}
	}
	return quota.Arrive(log, kept, 0, false)
}

// errChanged is returned when the second reading does not show what the first one
// did.
var errChanged = errors.New("the bundle changed while it was imported: try again")

// each hands the members to do, in order, as they were verified.
func (in *importer) each(ctx context.Context, do func(k kind, rel string, size int64, r io.Reader) error) error {
	a, err := in.open()
	if err != nil {
		return err
	}
	defer a.close()
	for i := 0; ; i++ {
		m, k, rel, err := a.next()
		if err == io.EOF || err == nil && k == kindManifest {
			if i != len(in.found.manifest.Members) {
				return errChanged
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w (%w)", errChanged, err)
		}
		if i >= len(in.found.manifest.Members) || m.Name != in.found.manifest.Members[i].Name || m.Bytes != in.found.manifest.Members[i].Bytes {
			return errChanged
		}
		r := &checked{ctx: ctx, r: a.tar, want: in.found.sums[i]}
		if err := do(k, rel, m.Bytes, r); err != nil {
			return err
		}
		// Nothing is left of it but, maybe, its end, which tells whether it is what was
		// verified.
		if _, err := io.Copy(io.Discard, r); err != nil {
			return err
		}
	}
}

// checked yields a member, and an error in place of its end when it is not what was
// verified.
type checked struct {
	ctx  context.Context
	r    io.Reader
	sum  uint32
	want uint32
}

func (c *checked) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	c.sum = crc32.Update(c.sum, castagnoli, p[:n])
	if err == io.EOF && c.sum != c.want {
		err = errChanged
	}
	return n, err
}

// blob stores one blob.
func (in *importer) blob(ctx context.Context, hex string, r io.Reader) error {
	want, err := blobref.ParseHex(hex)
	if err != nil {
		return err
	}
	putter, ok := blobstore.As[blobstore.Putter](in.m.Blobs())
	if !ok {
		return errors.New("the blobs of this home take no streams")
	}
	got, _, err := putter.Put(ctx, r)
	if err == nil && got != want {
		err = errChanged
	}
	return err
}
