package bash

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/quantity"
)

// MaxScript is how long a script may be, in bytes.
const MaxScript = 16 << 20

// maxArgument is the longest script that is an argument of its shell. The system allows 128 KiB (MAX_ARG_STRLEN of
// execve(2)).
const maxArgument = 64 << 10

// CheckScript says what is wrong with a script that no shell is given.
func CheckScript(script string) error {
	if len(script) > MaxScript {
		return fmt.Errorf("the script has %s, and %s are the most: put it into a file, and run that", quantity.Bytes(int64(len(script))), quantity.Size(MaxScript))
	}
	return nil
}

// fromFile is the script of a shell that finds the long one in file 3: that is closed before it begins, on the same line, so that
// errors name its lines as they are.
const fromFile = `eval "exec 3<&-;$(cat <&3)"`

// longScript puts a script that is too long for an argument into a file in memory. It returns nil for one that is not. argv
// is what the shell is started with.
func (p *Process) longScript(argv []string) (_ *os.File, _ []string, err error) {
	if last := len(argv) - 1; p.shell && len(argv[last]) > maxArgument {
		fd, err := unix.MemfdCreate("agentrun-script", unix.MFD_CLOEXEC)
		if err != nil {
			return nil, nil, fmt.Errorf("making a file in memory: %w", err)
		}
		f := os.NewFile(uintptr(fd), "script")
		if _, err := f.WriteAt([]byte(argv[last]), 0); err != nil {
			f.Close()
			return nil, nil, fmt.Errorf("writing a script to a file in memory: %w", err)
		}
		return f, append(append([]string(nil), argv[:last]...), fromFile), nil
	}
	return nil, argv, nil
}
