package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/process"
)

// temporaryPrefix begins the names of directories for private temporary files; what follows names the process that made it.
const temporaryPrefix = "agentrun-sandbox-"

// makeTemporary makes the directory that holds what becomes /tmp and /var/tmp.
func makeTemporary() (string, error) {
	sweepTemporary()
	me := process.Self()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-%d-", temporaryPrefix, me.PID, me.PIDStart))
	if err != nil {
		return "", fmt.Errorf("making a place for temporary files: %w", err)
	}
	for _, name := range temporary {
		sub := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(sub, 0o700), os.Chmod(sub, fs.ModeSticky|0o777)); err != nil {
			removeTemporary(dir)
			return "", fmt.Errorf("making a place for temporary files: %w", err)
		}
	}
	return filepath.EvalSymlinks(dir)
}

// sweepTemporary removes what killed processes of this user left.
func sweepTemporary() {
	names, _ := filepath.Glob(filepath.Join(os.TempDir(), temporaryPrefix+"*"))
	for _, name := range names {
		var pid int
		var start uint64
		if _, err := fmt.Sscanf(filepath.Base(name), temporaryPrefix+"%d-%d-", &pid, &start); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() {
			continue
		}
		if s, err := process.ReadStat(pid); err == nil && s.Start == start && !s.Dead() {
			continue
		}
		removeTemporary(name)
	}
}

// removeTemporary removes a directory with all that a command may have put into it, also directories that it has
// locked itself out of. No link is followed.
func removeTemporary(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	_ = fs.WalkDir(root.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() && err == nil {
			_ = root.Chmod(path, 0o700)
		}
		return nil
	})
	root.Close()
	_ = os.RemoveAll(dir)
}
