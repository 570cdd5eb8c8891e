package withhold

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"
)

// These calls stand in for golang.org/x/sys/unix. A package that needs only the standard library is initialised before
// all that need more, so that a program which is executed anew has not done its work twice: 1 ms instead of 5.

// numberOfMemfdCreate is that of the system call, by architecture; package syscall lacks it on some.
var numberOfMemfdCreate = map[string]uintptr{
	"386": 356, "amd64": 319, "arm": 385, "arm64": 279, "loong64": 279, "mips64le": 5314, "ppc64le": 360, "riscv64": 279, "s390x": 350,
}

// From linux/memfd.h and linux/fcntl.h.
const (
	mfdAllowSealing = 2
	fAddSeals       = 1033
	fGetSeals       = 1034

	// seals make the file what it was when it was handed over: no more seals, no other size, no other content.
	seals = 1 | 2 | 4 | 8
)

// memoryFile makes a file in memory, which stays open in a program that is executed.
func memoryFile(name string) (int, error) {
	number, ok := numberOfMemfdCreate[runtime.GOARCH]
	if !ok {
		return -1, fmt.Errorf("making a file in memory: %w", syscall.ENOSYS)
	}
	p, err := syscall.BytePtrFromString(name)
	if err != nil {
		return -1, err
	}
	fd, _, errno := syscall.Syscall(number, uintptr(unsafe.Pointer(p)), mfdAllowSealing, 0)
	if errno != 0 {
		return -1, fmt.Errorf("making a file in memory: %w", errno)
	}
	return int(fd), nil
}

func seal(fd int) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fAddSeals, seals); errno != 0 {
		return fmt.Errorf("sealing a file in memory: %w", errno)
	}
	return nil
}

// sealed reports whether a file is one that seal has sealed.
func sealed(fd int) bool {
	got, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fGetSeals, 0)
	return errno == 0 && got == seals
}
