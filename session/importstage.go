package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// Staged names. The artifact directory is next to the log, under a name of its own.
const (
	stagedLog       = "log"
	stagedDamaged   = "damaged"
	stagedArtifacts = "artifacts"
)

// Log takes in the log, which begins with the bytes that BeginImport was given.
func (im *Import) Log(r io.Reader) error {
	br := bufio.NewReaderSize(r, blockSize)
	if im.preamble != nil {
		if _, err := br.Discard(int(im.skip)); err != nil {
			return fmt.Errorf("importing the log: %w", err)
		}
	}
	return im.write(stagedLog, func(w io.Writer) error {
		if _, err := w.Write(im.preamble); err != nil {
			return err
		}
		if len(im.maps.list) > 0 {
			return im.maps.copyEntries(w, br)
		}
		return im.copy(w, br)
	})
}

// Damaged takes in what was kept of damaged bytes.
func (im *Import) Damaged(r io.Reader) error {
	if err := im.mark(); err != nil {
		return err
	}
	return im.write(stagedDamaged, func(w io.Writer) error { return im.copy(w, r) })
}

// Artifact takes in a file of the artifact directory. name is relative to it.
func (im *Import) Artifact(name string, r io.Reader) error {
	return im.artifact(name, func(w io.Writer) error {
		if len(im.maps.list) > 0 && strings.HasSuffix(name, catalog.PlainExt) {
			_, err := im.maps.copyLog(w, r)
			return err
		}
		return im.copy(w, r)
	})
}

// SmallArtifact is Artifact for bytes in memory. It may be called by several
// goroutines at once, also while another method runs, except Publish and Close.
func (im *Import) SmallArtifact(name string, data []byte) error {
	return im.artifact(name, func(w io.Writer) error {
		if len(im.maps.list) > 0 && strings.HasSuffix(name, catalog.PlainExt) {
			_, err := im.maps.copyLog(w, bytes.NewReader(data))
			return err
		}
		_, err := w.Write(data)
		return err
	})
}

func (im *Import) artifact(name string, write func(io.Writer) error) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("importing artifact %.200q: the name leads elsewhere", name)
	}
	if err := im.mark(); err != nil {
		return err
	}
	if err := im.write(filepath.Join(stagedArtifacts, name), write); err != nil {
		return err
	}
	if len(im.maps.list) > 0 && coldLog(name) {
		if err := im.mapCold(name); err != nil {
			return fmt.Errorf("importing %s: mapping its paths: %w", name, err)
		}
	}
	return nil
}

// mark makes the staged artifact directory say that its log is not there yet.
func (im *Import) mark() error {
	im.mu.Lock()
	marked := im.staged[filepath.Join(stagedArtifacts, importMark)]
	im.mu.Unlock()
	if marked {
		return nil
	}
	err := im.write(filepath.Join(stagedArtifacts, importMark), func(io.Writer) error { return nil })
	if errors.Is(err, fs.ErrExist) {
		return nil // another goroutine was faster
	}
	return err
}

func (im *Import) copy(w io.Writer, r io.Reader) error {
	if im.buf == nil {
		im.buf = make([]byte, blockSize)
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{r}, im.buf)
	return err
}

// write makes a file in the staging directory, and the directories it is in.
func (im *Import) write(name string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("importing %s: %w", name, err)
		}
	}()
	f, err := im.create(name)
	if err != nil {
		return err
	}
	err = write(f)
	if im.m.opts.Durability == Sync {
		durable.WriteOut(f) // so that there is less to wait for in Publish
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (im *Import) create(name string) (durable.File, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if im.staging == "" {
		im.staging = im.tempDir()
	}
	if err := im.mkdir(filepath.Join(im.staging, filepath.Dir(name))); err != nil {
		return nil, err
	}
	f, err := durable.CreateExclusive(im.m.opts.FS, filepath.Join(im.staging, name))
	if err == nil {
		im.staged[name] = true
	}
	return f, err
}

// fewFiles is how many files are made durable one by one. A sync of the file system
// costs what all its users have written, and one of a file a commit of its own.
const fewFiles = 8

// sync makes what is staged durable.
func (im *Import) sync() error {
	fsys := im.m.opts.FS
	if len(im.staged) > fewFiles {
		return fsys.SyncFS(im.staging)
	}
	for name := range im.staged {
		f, err := fsys.OpenFile(filepath.Join(im.staging, name), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		err = f.Sync()
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	for _, dir := range slices.Backward(im.made) {
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes a directory of the staging directory, or that itself. im.mu is held.
func (im *Import) mkdir(dir string) error {
	if im.isMade[dir] {
		return nil
	}
	if dir != im.staging {
		if err := im.mkdir(filepath.Dir(dir)); err != nil {
			return err
		}
	}
	if err := im.m.opts.FS.Mkdir(dir, durable.DirPerm); err != nil {
		return err
	}
	im.made, im.isMade[dir] = append(im.made, dir), true
	return nil
}
