package localdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
)

// checkMode holds the mode of the store against what is on the disk.
func (s *Store) checkMode() error {
	info, err := s.fsys.Lstat(s.dir)
	switch {
	case err == nil && !info.IsDir() && info.Mode()&fs.ModeSymlink == 0:
		return errors.New("it is a file, not a directory")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	_, err = s.fsys.Lstat(filepath.Join(s.dir, marker))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	marked := err == nil
	switch s.opts.Mode {
	case blobstore.Verified:
		known := marked
		if !known {
			// A copy may have lost the files whose names begin with a dot.
			ours, err := s.ours()
			if err != nil {
				return err
			}
			known = !ours
		}
		if known && s.isEncrypted() {
			return fmt.Errorf("%w: %w", blobstore.ErrMode, blobstore.ErrEncrypted)
		}
		if marked {
			return fmt.Errorf("%w: it holds opaque blobs (%s says so), whose bytes do not hash to their names", blobstore.ErrMode, marker)
		}
		return nil
	case blobstore.Opaque:
		return s.checkOpaque(marked)
	}
	return fmt.Errorf("%w: %v", blobstore.ErrMode, s.opts.Mode)
}

// isEncrypted reports whether the marker of package encrypted is in the directory.
func (s *Store) isEncrypted() bool {
	for _, id := range blobstore.EncryptionMarkers() {
		f, err := s.fsys.OpenFile(s.path(id), os.O_RDONLY, 0)
		if err != nil {
			continue
		}
		found := isEncrypted(f)
		f.Close()
		if found {
			return true
		}
	}
	return false
}

// ours reports whether the directory was made by agentrun, as far as is known: it was
// opened as such, or has in it what nobody else makes.
func (s *Store) ours() (bool, error) {
	if !s.opts.Adopt {
		return true, nil
	}
	for _, name := range []string{ourMark, leaseDir, gcDir} {
		_, err := s.fsys.Lstat(filepath.Join(s.dir, name))
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

func (s *Store) checkOpaque(marked bool) error {
	// What a symbolic link points to is called by its own name too.
	real, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		real = s.dir
	}
	if filepath.Base(s.dir) == ompDir || filepath.Base(real) == ompDir {
		return fmt.Errorf("%w: a directory called %q belongs to verified blobs; give opaque ones a directory of another name", blobstore.ErrMode, ompDir)
	}
	if marked {
		return nil
	}
	entries, err := s.fsys.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.opts.Adopt {
		return s.adopt(entries)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			return fmt.Errorf("%w: it is in use, but not for opaque blobs (it holds %s and no %s); give them an empty directory", blobstore.ErrMode, e.Name(), marker)
		}
	}
	return nil
}

// Adopting looks at so many blobs, of so many bytes each.
const (
	adoptBlobs = 16
	adoptBytes = 4 << 20
)

// adopt refuses a directory that is not marked when a blob in it hashes to its name, as
// those of a verified store do. What is no blob does not count: another program may have
// files of its own there.
func (s *Store) adopt(entries []fs.DirEntry) error {
	if name, _ := s.sample(entries); name != "" {
		return fmt.Errorf("%w: it is in use, but not for opaque blobs (%s hashes to its name); give them an empty directory", blobstore.ErrMode, name)
	}
	return nil
}

// join refuses to store verified blobs in a directory of another program none of whose
// blobs hashes to its name, as ciphertext does not: it could not be opened as such then.
func (s *Store) join() error {
	if ours, err := s.ours(); ours || err != nil {
		return err
	}
	entries, err := s.fsys.ReadDir(s.dir)
	if err != nil {
		return err
	}
	if name, looked := s.sample(entries); name == "" && looked > 0 {
		return fmt.Errorf("writing to blob directory %s: %w: another program made it, and no blob in it hashes to its name: they may be ciphertext (then open it with ?encrypted=passphrase-file:FILE)", s.dir, blobstore.ErrMode)
	}
	return nil
}

// sample looks at the bytes of some blobs. It returns the name of the first that hashes to
// it, else "", and how many it looked at.
func (s *Store) sample(entries []fs.DirEntry) (name string, looked int) {
	for _, e := range entries {
		ref, err := blobref.ParseHex(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		data, err := durable.ReadFile(s.fsys, s.path(ref), adoptBytes)
		if err != nil {
			continue // too long to tell, or gone
		}
		if ref.Verify(data) {
			return e.Name(), looked
		}
		if looked++; looked == adoptBlobs {
			break
		}
	}
	return "", looked
}

// strange is the error of a blob that does not hash to its name in a directory that
// another program made: damage where others do, and most likely ciphertext where none does.
func (s *Store) strange(ref blobref.Ref) error {
	if s.looked.Load() == 0 {
		entries, err := s.fsys.ReadDir(s.dir)
		if err != nil {
			return err
		}
		looked := int32(-1)
		if name, n := s.sample(entries); name == "" {
			looked = int32(n)
		}
		s.looked.Store(looked)
	}
	if looked := s.looked.Load(); looked > 0 {
		return &seemsEncryptedError{path: s.path(ref), looked: int(looked)}
	}
	return fmt.Errorf("%w: %s does not hash to its name, and stays where it is, since another program made the directory; if that program encrypts, open it with ?encrypted=passphrase-file:FILE", blobstore.ErrCorrupt, s.path(ref))
}

// seemsEncryptedError is about a blob of which nobody can tell damage from ciphertext. It
// matches blobstore.ErrEncrypted, and blobstore.ErrCorrupt, since it cannot be read.
type seemsEncryptedError struct {
	path   string
	looked int
}

func (e *seemsEncryptedError) Error() string {
	return fmt.Sprintf("it seems to be encrypted by the program that made the directory (no blob there of %d that were looked at hashes to its name); open it with ?encrypted=passphrase-file:FILE; %s stays where it is", e.looked, e.path)
}

func (e *seemsEncryptedError) Is(target error) bool {
	return target == blobstore.ErrEncrypted || target == blobstore.ErrCorrupt
}

// prepare makes the directory, and its marker, before the first write.
func (s *Store) prepare() error {
	if s.ready.Load() {
		return nil
	}
	s.readyMu.Lock()
	defer s.readyMu.Unlock()
	if s.ready.Load() {
		return nil
	}
	if err := s.makeDir(); err != nil {
		return err
	}
	// Again, for what another process did since Open.
	if err := s.checkMode(); err != nil {
		return fmt.Errorf("writing to blob directory %s: %w", s.dir, err)
	}
	if err := s.mark(); err != nil {
		return err
	}
	s.ready.Store(true)
	return nil
}

// mark puts into the directory what says of which kind it is, before the first blob.
func (s *Store) mark() error {
	name, text := marker, "The blobs in this directory do not hash to their names: agentrun keeps ciphertext here.\n"
	if s.opts.Mode == blobstore.Verified {
		if !s.opts.Adopt {
			return nil
		}
		if empty, err := s.empty(); err != nil {
			return err
		} else if !empty {
			return s.join()
		}
		name, text = ourMark, "agentrun made this directory: what does not hash to its name here is damage.\n"
	}
	path := filepath.Join(s.dir, name)
	if _, err := s.fsys.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return durable.WriteFile(s.fsys, path, s.opts.Sync, []byte(text))
}

// empty reports whether nobody has anything in the directory.
func (s *Store) empty() (bool, error) {
	entries, err := s.fsys.ReadDir(s.dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			return false, nil
		}
	}
	return err == nil, err
}

func (s *Store) makeDir() error {
	var missing []string // innermost first
	for dir := s.dir; ; dir = filepath.Dir(dir) {
		_, err := s.fsys.Lstat(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		missing = append(missing, dir)
	}
	if err := durable.MkdirAll(s.fsys, s.dir); err != nil {
		return err
	}
	if !s.opts.Sync {
		return nil
	}
	for _, dir := range missing {
		if err := s.fsys.SyncDir(filepath.Dir(dir)); err != nil {
			return fmt.Errorf("syncing the directory of %s: %w", dir, err)
		}
	}
	return nil
}
