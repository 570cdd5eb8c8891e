package read

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/outputsink"
)

// maxGenerated is how much is read of a file that the kernel makes while it is read, in bytes:
// some have no end. Tests change it.
var maxGenerated = 64 << 20

// fileSystems are those whose files are made while they are read, by their magic numbers in
// statfs(2). What they say of their size is 0, or a page, whatever there is.
var fileSystems = []int64{
	unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC,
	unix.DEBUGFS_MAGIC, unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.SELINUX_MAGIC,
	configfsMagic, fusectlMagic,
}

// Of linux/magic.h and fs/fuse/control.c, which x/sys/unix lacks.
const (
	configfsMagic = 0x62656570
	fusectlMagic  = 0x65735543
)

// made is what a file held when it was read.
type made struct {
	*part
	cut bool // there is more
}

func (m *made) remark() string {
	return fmt.Sprintf("It is made while it is read, and only its first %s are here: read the rest with a command", outputsink.FormatBytes(m.size))
}

// generated reads a file that does not say how long it is; nil is a file that does. It waits
// for nothing: of what comes piece by piece it is that which is there.
func generated(ctx context.Context, f durable.File) (*made, error) {
	at, err := f.Identify()
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || !slices.Contains(fileSystems, int64(fs.Type)) {
		// Elsewhere, as in FUSE, a file that has nothing may yet give something.
		if at.Size > 0 {
			return nil, nil
		}
	}
	if at.Size > int64(maxGenerated) {
		return nil, nil // it does know: /proc/kcore
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK); err != nil {
		return nil, err
	}
	data := make([]byte, 0, 8<<10)
	for len(data) <= maxGenerated {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if len(data) == cap(data) {
			data = slices.Grow(data, len(data))
		}
		n, err := unix.Read(fd, data[len(data):cap(data)])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN), err == nil && n == 0:
			if now, err := f.Identify(); at.Size == 0 && (len(data) == 0 || err != nil || now.Size >= int64(len(data))) {
				return nil, err // an empty file, or one that somebody has begun to write
			}
			return &made{part: newText(data, f)}, nil
		case err != nil:
			return nil, err
		}
		data = data[:len(data)+n]
	}
	return &made{part: newText(data[:maxGenerated], f), cut: true}, nil
}
