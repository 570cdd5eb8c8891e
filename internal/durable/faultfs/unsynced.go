package faultfs

import (
	"io/fs"

	"github.com/agentrun/agentrun/internal/durable"
)

// Unsynced is a file system that does not wait for the disk. Below an FS it makes an
// enumeration of faults fast: which syncs there are, and in which order, is counted
// above it.
type Unsynced struct{ durable.FS }

// SyncDir does nothing.
func (Unsynced) SyncDir(string) error { return nil }

// SyncFS does nothing.
func (Unsynced) SyncFS(string) error { return nil }

// OpenFile opens a file whose Sync does nothing.
func (u Unsynced) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := u.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ durable.File }

func (unsyncedFile) Sync() error { return nil }
