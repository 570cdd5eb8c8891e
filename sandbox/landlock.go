package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock is called here without a library: those there are bind all threads of a process, with C code or a kernel of
// 2026. Here one thread does everything and then becomes the command.

// What landlock is to handle, of ABI 6 and above: all of files, signals, and abstract sockets.
const (
	landlockABI = 6

	landlockFiles = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1
	landlockRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockTree  = landlockFiles &^ (unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV)
	landlockNode  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	landlockNodes = landlockNode | unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// landlockVersion is the ABI of the kernel, 0 for none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// restrict binds this thread, for good. It sets no_new_privs.
func (s *spec) restrict() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("giving up new privileges: %w", err)
	}
	attr := unix.LandlockRulesetAttr{Scoped: unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET}
	if s.Policy.confined() {
		attr.Handled_access_fs = landlockFiles
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("making rules of landlock: %w", errno)
	}
	defer unix.Close(int(fd))
	if s.Policy.confined() {
		if err := s.allow(int(fd)); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("applying the rules of landlock: %w", errno)
	}
	return nil
}

// allow adds what may be done where. Mounts have made most of the rest read-only already; devices they have not.
func (s *spec) allow(ruleset int) error {
	rules := map[string]uint64{"/": landlockRead, "/dev/pts": landlockNodes, "/dev/shm": landlockTree}
	for _, node := range devices {
		rules["/dev/"+node] = landlockNode
	}
	rules[console] = landlockNode // there is one when the command has a terminal
	for _, dir := range s.writable() {
		rules[dir] = landlockTree
	}
	for path, access := range rules {
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err != nil {
			return fmt.Errorf("allowing %s: %w", path, err)
		}
		rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
		_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
		unix.Close(fd)
		if errno != 0 {
			return fmt.Errorf("allowing %s: %w", path, errno)
		}
	}
	return nil
}
