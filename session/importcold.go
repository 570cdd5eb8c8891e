package session

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/internal/durable"
)

// maxMappedCold is how much a compressed log of a subagent may unpack to, in bytes, for
// its paths to be mapped: a bomb is told from a log by nothing else.
const maxMappedCold = 16 << 30

// Staged names of a compressed log whose paths are being mapped.
const (
	stagedMapped = "mapped" // without the table of what is folded
	stagedTabled = "tabled"
)

// mapCold maps the paths of a compressed log of a subagent that was staged. One that
// they leave as it is, or that cannot be decompressed, stays to the byte.
func (im *Import) mapCold(name string) error {
	staged := filepath.Join(stagedArtifacts, name)
	f, err := im.m.opts.FS.OpenFile(filepath.Join(im.staging, staged), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	look, err := newPathMaps(im.maps.list)
	if err != nil {
		return err
	}
	if err := readCold(f, func(r io.Reader) error {
		_, err := look.copyLog(io.Discard, r)
		return err
	}); err != nil || !look.any() {
		return nil // the doctor tells what is wrong with it
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	mapped := filepath.Join(stagedMapped, name)
	err = im.write(mapped, func(w io.Writer) error {
		return readCold(f, func(r io.Reader) error {
			pr, pw := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, err := im.maps.copyLog(pw, r)
				pw.CloseWithError(err)
			}()
			err := writeCold(w, pr, nil)
			pr.CloseWithError(err)
			<-done
			return err
		})
	})
	if err != nil {
		return err
	}
	if mapped, err = im.tabled(name, mapped); err != nil {
		return err
	}
	fsys := im.m.opts.FS
	if err := fsys.Remove(filepath.Join(im.staging, staged)); err != nil {
		return err
	}
	if err := fsys.RenameNoReplace(filepath.Join(im.staging, mapped), filepath.Join(im.staging, staged)); err != nil {
		return err
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	delete(im.staged, mapped)
	return nil
}

// tabled gives a compressed log the table of what is folded in it, and returns the
// staged name of what has it. A log in which nothing is folded needs none.
func (im *Import) tabled(name, mapped string) (string, error) {
	f, err := im.m.opts.FS.OpenFile(filepath.Join(im.staging, mapped), os.O_RDONLY, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	id, err := f.Identify()
	if err != nil {
		return "", err
	}
	stream, err := openFrames(f, id.Size, im.m.blobs)
	if err != nil {
		return "", err
	}
	t, err := findFolds(context.Background(), stream)
	if err != nil || len(t.list) == 0 {
		return mapped, err
	}
	frame, err := t.frame()
	if err != nil {
		return "", err
	}
	end, err := framesEnd(f, id.Size)
	if err != nil {
		return "", err
	}
	made := filepath.Join(stagedTabled, name)
	return made, im.write(made, func(w io.Writer) error {
		_, err := io.Copy(w, io.NewSectionReader(f, 0, end))
		if err == nil {
			_, err = w.Write(frame)
		}
		if err == nil {
			_, err = io.Copy(w, io.NewSectionReader(f, end, id.Size-end))
		}
		return err
	})
}

// framesEnd is where the frames of a compressed log end and its seek table begins.
func framesEnd(f durable.File, size int64) (int64, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxColdFrame))
	if err != nil {
		return 0, err
	}
	defer dec.Close()
	r, err := seekable.NewReader(io.NewSectionReader(f, 0, size), dec)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	table, err := r.SeekTable()
	if err != nil || table.NumFrames() == 0 {
		return 0, err
	}
	last, _ := table.EntryByID(table.NumFrames() - 1)
	return int64(last.CompressedOffset) + int64(last.CompressedSize), nil
}

// errLongCold is the error of a compressed log that unpacks to more than maxMappedCold.
var errLongCold = errors.New("it unpacks to too much")

// readCold reads the stream that a compressed log holds, to its end.
func readCold(f io.Reader, read func(io.Reader) error) error {
	dec, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxColdFrame))
	if err != nil {
		return err
	}
	defer dec.Close()
	r := &io.LimitedReader{R: dec, N: maxMappedCold}
	if err := read(r); err != nil {
		return err
	}
	if r.N == 0 {
		return errLongCold
	}
	return nil
}
