package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// tree is a part of the file system that is mounted nowhere.
type tree struct {
	fd        int
	path      string
	directory bool
}

// take makes a tree of what is at path now.
func take(path string, recursive bool) (tree, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, flags)
	if err != nil {
		return tree{}, fmt.Errorf("taking %s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return tree{}, fmt.Errorf("taking %s: %w", path, err)
	}
	return tree{fd, path, st.Mode&unix.S_IFMT == unix.S_IFDIR}, nil
}

// set adds attributes to all mounts of a tree.
func (t tree) set(attributes uint64) error {
	if err := unix.MountSetattr(t.fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes}); err != nil {
		return fmt.Errorf("binding %s: %w", t.path, err)
	}
	return nil
}

// attach mounts a tree.
func (t tree) attach(at string) error {
	defer unix.Close(t.fd)
	if err := mountPoint(at, t.directory); err != nil {
		return fmt.Errorf("making a place for %s: %w", at, err)
	}
	if err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, at, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting %s: %w", at, err)
	}
	return nil
}

const (
	harmless = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	frozen   = unix.MOUNT_ATTR_RDONLY | harmless
)

// mounts makes this mount namespace, which is a new one, what the policy says. What is to stay writable is taken out,
// everything is made read-only, directories are covered, and what was taken out is put back.
func (s *spec) mounts() error {
	if !s.Policy.confined() {
		return nil
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("parting with the mounts of others: %w", err)
	}
	temporaries := map[string]tree{}
	for at, name := range temporary {
		t, err := take(filepath.Join(s.Tmp, name), false)
		if err == nil {
			err = t.set(harmless)
		}
		if err != nil {
			return err
		}
		temporaries[at] = t
	}
	var back []tree
	for _, a := range s.attachments() {
		t, err := take(a.path, true)
		if err != nil {
			return err
		}
		attributes := uint64(frozen)
		if a.writable {
			attributes = harmless
		}
		if err := t.set(attributes); err != nil {
			return err
		}
		back = append(back, t)
	}
	var nodes []tree
	for _, node := range devices {
		t, err := take("/dev/"+node, false)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		nodes = append(nodes, t)
	}
	if path := ownTerminal(); path != "" {
		t, err := take(path, false)
		if err != nil {
			return err
		}
		t.path = console
		nodes = append(nodes, t)
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: frozen}); err != nil {
		return fmt.Errorf("making files read-only: %w", err)
	}
	for at, t := range temporaries {
		if real, err := filepath.EvalSymlinks(at); err != nil || real != at {
			unix.Close(t.fd) // not there, or another one
			continue
		}
		if err := t.attach(at); err != nil {
			return err
		}
	}
	if err := s.devices(nodes); err != nil {
		return err
	}
	if err := cover("/run", "mode=0755"); err != nil {
		return err
	}
	for _, t := range back {
		if err := t.attach(t.path); err != nil {
			return err
		}
	}
	for _, path := range s.Policy.Hidden {
		if err := hide(path); err != nil {
			return err
		}
	}
	return nil
}

// hide makes a directory empty, and a file one that cannot be opened: a device where there are none.
func hide(path string) error {
	info, err := os.Lstat(path)
	if err != nil || info.IsDir() {
		return cover(path, "mode=0755")
	}
	t, err := take("/dev/null", false)
	if err != nil {
		return err
	}
	if err := t.set(frozen); err != nil {
		unix.Close(t.fd)
		return err
	}
	return t.attach(path)
}

// console is what a command's terminal is called in the sandbox, where /dev/pts has others, as bubblewrap and
// systemd-nspawn call it.
const console = "/dev/console"

// ownTerminal is the path of the terminal that this process has for one of its standard files, "" for none. It was opened
// outside, so that the path that the system tells of it says nothing here.
func ownTerminal() string {
	for fd := range 3 {
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != nil {
			continue
		}
		var st, at unix.Stat_t
		if unix.Fstat(fd, &st) != nil {
			continue
		}
		path := "/dev/pts/" + strconv.Itoa(int(unix.Minor(st.Rdev)))
		if unix.Stat(path, &at) == nil && at.Dev == st.Dev && at.Ino == st.Ino {
			return path
		}
	}
	return ""
}

// cover mounts an empty file system in memory on a directory, if there is one.
func cover(dir, data string) error {
	if real, err := filepath.EvalSymlinks(dir); err != nil || real != dir {
		return nil
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data); err != nil {
		return fmt.Errorf("covering %s: %w", dir, err)
	}
	return nil
}

// devices makes a /dev of few files.
func (s *spec) devices(nodes []tree) error {
	if err := cover("/dev", "mode=0755"); err != nil {
		return err
	}
	for _, t := range nodes {
		if err := t.attach(t.path); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	shared := "mode=1777"
	if most := s.Policy.Limits.Disk; most > 0 {
		shared += ",size=" + strconv.FormatInt(most, 10)
	}
	if err := cover("/dev/shm", shared); err != nil {
		return err
	}
	if err := unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("making terminals: %w", err)
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, "/dev/"+name); err != nil {
			return fmt.Errorf("making /dev/%s: %w", name, err)
		}
	}
	return nil
}
