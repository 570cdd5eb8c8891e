package checkpoint

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// settled is how old a file must be for its stamp to be believed: the clock of a file
// system may go in steps of up to 2 seconds (FAT), and two changes within one step
// look alike. Git calls younger files racily clean.
const settled = 2 * time.Second

// stamp tells apart, without reading, a file from what it was, or "" where it is too
// young for that. The time of the last change of the inode cannot be set back.
func stamp(info fs.FileInfo, now time.Time) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	limit := now.Add(-settled).UnixNano()
	if st.Ctim.Nano() > limit || st.Mtim.Nano() > limit {
		return ""
	}
	return fmt.Sprintf("%d-%d-%d", st.Mtim.Nano(), st.Ctim.Nano(), st.Ino)
}

// changeTime is when a file was last changed in any way.
func changeTime(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(0, st.Ctim.Nano())
	}
	return info.ModTime()
}

// unchanged reports, without reading it, that a file is as s says.
func (s *State) unchanged(info fs.FileInfo, now time.Time) bool {
	return s != nil && s.Stamp != "" && s.Size == info.Size() && s.Mode == info.Mode().Perm() && s.Stamp == stamp(info, now)
}

// errUnsteady is returned for a file that others write to all the time.
var errUnsteady = errors.New("it changes while it is read")

// steadyTries is how often a file is read that others change meanwhile.
const steadyTries = 3

// observe reads a regular file with read, which says what content it has, until it was
// the same file, unchanged, before and after.
func observe(fsys durable.FS, path string, now func() time.Time, read func(r io.ReadSeeker) (blobref.Ref, int64, error)) (*State, error) {
	for range steadyTries {
		s, err := observeOnce(fsys, path, now, read)
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, fmt.Errorf("reading %s: %w", path, errUnsteady)
}

func observeOnce(fsys durable.FS, path string, now func() time.Time, read func(r io.ReadSeeker) (blobref.Ref, int64, error)) (*State, error) {
	began := now()
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// A file that grows as fast as it is read would have no end.
	ref, size, err := read(io.NewSectionReader(f, 0, before.Size()+1))
	if err != nil {
		return nil, err
	}
	after, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if size != after.Size() || before.Size() != after.Size() || !changeTime(before).Equal(changeTime(after)) {
		return nil, nil
	}
	return &State{ref, size, after.Mode().Perm(), stamp(after, began)}, nil
}

// sum is the content of a file.
func sum(ctx context.Context) func(r io.ReadSeeker) (blobref.Ref, int64, error) {
	return func(f io.ReadSeeker) (blobref.Ref, int64, error) {
		h := sha256.New()
		n, err := io.Copy(h, reader{ctx, f})
		var digest [sha256.Size]byte
		h.Sum(digest[:0])
		return blobref.FromSum(digest), n, err
	}
}

// reader ends with its context.
type reader struct {
	ctx context.Context // of the one call this value lives for
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
