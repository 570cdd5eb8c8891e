// Package faultfs is a file system that fails when told to. It wraps another
// durable.FS, counts the operations that change the disk and makes one of them
// fail, so that a test can walk through every place where a disk may fail:
//
//	for n := 0; ; n++ {
//		fsys := faultfs.New(durable.OS)
//		fsys.FailAt(n, unix.EIO)
//		... run the code, check the state with durable.OS ...
//		if !fsys.Fired() {
//			break // the code ran through without reaching operation n
//		}
//	}
//
// An FS is safe for concurrent use.
package faultfs

import (
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// mode is how the chosen operation fails.
type mode int

const (
	none  mode = iota
	fail       // that operation fails, once
	full       // that operation and every later write or create fails with ENOSPC; a write is short first
	crash      // that operation and every later one fails: the process is gone
)

// FS counts and fails operations of the file system it wraps.
type FS struct {
	inner durable.FS

	mu    sync.Mutex // guards all below
	ops   []string
	at    int
	mode  mode
	err   error
	fired bool
}

// New wraps inner. Without FailAt, FullAt or CrashAt it only counts.
func New(inner durable.FS) *FS { return &FS{inner: inner} }

// FailAt makes operation n (from 0) fail once with err, before it has had any
// effect.
func (f *FS) FailAt(n int, err error) { f.set(n, fail, err) }

// FullAt fills the disk at operation n: from there on everything that needs room
// (write, create, mkdir, link, clone) fails with ENOSPC, and if a write is the first of
// them, half of it still gets in. Removing and truncating work.
func (f *FS) FullAt(n int) { f.set(n, full, unix.ENOSPC) }

// CrashAt makes operation n and all later ones fail with ErrCrashed; a write
// leaves its first half. What is on disk then is what a killed process leaves.
func (f *FS) CrashAt(n int) { f.set(n, crash, ErrCrashed) }

// ErrCrashed is what every operation returns after CrashAt fired.
var ErrCrashed = fmt.Errorf("faultfs: the process is gone: %w", unix.EIO)

func (f *FS) set(n int, m mode, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.mode, f.err, f.fired, f.ops = n, m, err, false, nil
}

// Fired reports whether the operation to fail was reached.
func (f *FS) Fired() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// Ops returns the operations counted so far, in order.
func (f *FS) Ops() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.ops...)
}

// op counts one operation and returns the error it must fail with. partial
// asks a write to leave its first half.
func (f *FS) op(kind, name string) (partial bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.ops)
	f.ops = append(f.ops, kind+" "+name)
	if f.mode == none || n < f.at {
		return false, nil
	}
	first := !f.fired
	switch f.mode {
	case fail:
		if n != f.at {
			return false, nil
		}
	case full:
		if kind != "write" && kind != "create" && kind != "mkdir" && kind != "link" && kind != "clone" {
			return false, nil
		}
	}
	f.fired = true
	return first && kind == "write" && f.mode != fail, f.err
}

// gone fails reads after a crash: a dead process reads nothing either.
func (f *FS) gone() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mode == crash && f.fired {
		return f.err
	}
	return nil
}

func pathErr(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// OpenFile counts as an operation when it may create.
func (f *FS) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if flag&os.O_CREATE != 0 {
		if _, err := f.op("create", name); err != nil {
			return nil, pathErr("open", name, err)
		}
	} else if err := f.gone(); err != nil {
		return nil, pathErr("open", name, err)
	}
	file, err := f.inner.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, fs: f}, nil
}

func (f *FS) one(kind, name string, do func() error) error {
	if _, err := f.op(kind, name); err != nil {
		return pathErr(kind, name, err)
	}
	return do()
}

func (f *FS) Mkdir(name string, perm fs.FileMode) error {
	return f.one("mkdir", name, func() error { return f.inner.Mkdir(name, perm) })
}

func (f *FS) Rename(oldpath, newpath string) error {
	return f.one("rename", newpath, func() error { return f.inner.Rename(oldpath, newpath) })
}

func (f *FS) RenameNoReplace(oldpath, newpath string) error {
	return f.one("rename", newpath, func() error { return f.inner.RenameNoReplace(oldpath, newpath) })
}

func (f *FS) Link(oldpath, newpath string) error {
	return f.one("link", newpath, func() error { return f.inner.Link(oldpath, newpath) })
}

func (f *FS) LinkFile(file durable.File, newpath string) error {
	return f.one("link", newpath, func() error { return f.inner.LinkFile(file, newpath) })
}

func (f *FS) Symlink(target, newpath string) error {
	return f.one("link", newpath, func() error { return f.inner.Symlink(target, newpath) })
}

func (f *FS) Remove(name string) error {
	return f.one("remove", name, func() error { return f.inner.Remove(name) })
}

func (f *FS) SyncDir(name string) error {
	return f.one("syncdir", name, func() error { return f.inner.SyncDir(name) })
}

func (f *FS) SyncFS(name string) error {
	return f.one("syncfs", name, func() error { return f.inner.SyncFS(name) })
}

func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	if err := f.gone(); err != nil {
		return nil, pathErr("lstat", name, err)
	}
	return f.inner.Lstat(name)
}

func (f *FS) Identify(name string) (durable.Identity, error) {
	if err := f.gone(); err != nil {
		return durable.Identity{}, pathErr("stat", name, err)
	}
	return f.inner.Identify(name)
}

func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.gone(); err != nil {
		return nil, pathErr("readdir", name, err)
	}
	return f.inner.ReadDir(name)
}

type faultFile struct {
	durable.File
	fs *FS
}

func (f *faultFile) write(p []byte, do func([]byte) (int, error)) (int, error) {
	partial, err := f.fs.op("write", f.Name())
	if err == nil {
		return do(p)
	}
	n := 0
	if partial {
		n, _ = do(p[:len(p)/2])
	}
	return n, pathErr("write", f.Name(), err)
}

func (f *faultFile) Write(p []byte) (int, error) { return f.write(p, f.File.Write) }

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *faultFile) Sync() error {
	return f.fs.one("sync", f.Name(), f.File.Sync)
}

func (f *faultFile) WriteRange(src durable.File, off, n int64) (int64, error) {
	partial, err := f.fs.op("write", f.Name())
	if err == nil {
		return f.File.WriteRange(src, off, n)
	}
	done := int64(0)
	if partial {
		done, _ = f.File.WriteRange(src, off, n/2)
	}
	return done, pathErr("write", f.Name(), err)
}

func (f *faultFile) CloneFrom(src durable.File) error {
	return f.fs.one("clone", f.Name(), func() error { return f.File.CloneFrom(src) })
}

func (f *faultFile) Truncate(size int64) error {
	return f.fs.one("truncate", f.Name(), func() error { return f.File.Truncate(size) })
}

func (f *faultFile) Chmod(mode fs.FileMode) error {
	return f.fs.one("chmod", f.Name(), func() error { return f.File.Chmod(mode) })
}

func (f *faultFile) Touch() error {
	return f.fs.one("touch", f.Name(), f.File.Touch)
}
