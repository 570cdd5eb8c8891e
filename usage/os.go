package usage

import (
	"errors"
	"syscall"
)

// Of st_mode (stat(2)).
const (
	modeType    = syscall.S_IFMT
	modeRegular = syscall.S_IFREG
)

// isNoDir reports whether a directory was to be listed that is none.
func isNoDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
