package localdir

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// renewAfter is the age from which a blob that is stored once more gets a new time
// stamp. A collector leaves alone what is younger than its grace period, and that
// is never shorter than MinGrace: so the common case, a screenshot that was stored
// seconds ago, costs nothing.
const renewAfter = time.Minute

// claim is called with the open file f of a blob that is being stored again and has
// the right bytes. It makes sure that no collector takes it for old: afterwards,
// when the result is present, the file that the name stands for is young. A
// collector moves a file away before it looks at its age for the last time, so
// either it sees the new time stamp, or the name is found missing here, and the blob
// is stored like a new one.
func (s *Store) claim(ref blobref.Ref, f durable.File, id durable.Identity) (state, error) {
	if time.Since(time.Unix(0, id.ModTime)) < renewAfter {
		return present, nil
	}
	err := f.Touch()
	switch {
	case errors.Is(err, unix.EROFS):
		return present, nil // no collector can remove anything either
	case errors.Is(err, fs.ErrPermission):
		return differs, nil // somebody else's file: put one of ours in its place
	case err != nil:
		return absent, err
	}
	named, err := s.fsys.Identify(s.path(ref))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return absent, nil
	case err != nil:
		return absent, err
	case !named.SameFile(id):
		return absent, nil // the publish finds out what it is
	}
	if s.opts.Sync && s.synced.has(ref, id) {
		s.synced.add(ref, named) // only the time stamp is new
	}
	return present, nil
}
