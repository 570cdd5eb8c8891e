package archive

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
)

// budget bounds how much is read.
type budget struct {
	io.ReaderAt
	left int64
}

var errDirectory = fmt.Errorf("its directory is larger than 16 MiB: %w", ErrTooLarge)

func (b *budget) ReadAt(p []byte, off int64) (int, error) {
	if b.left -= int64(len(p)); b.left < 0 {
		return 0, errDirectory
	}
	return b.ReaderAt.ReadAt(p, off)
}

func (s Source) zip() (*zip.Reader, error) {
	// The directory is in memory once it is read, however many members it claims.
	b := &budget{s.ReaderAt, maxDirectory}
	r, err := zip.NewReader(b, s.Size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) {
		return nil, fmt.Errorf("reading the zip archive: %w", err)
	}
	b.left = math.MaxInt64
	return r, nil
}

func (s Source) listZip() (Archive, error) {
	r, err := s.zip()
	if err != nil {
		return Archive{}, err
	}
	a := Archive{Format: Zip}
	for _, f := range r.File {
		if len(a.Members) == MaxMembers {
			a.Cut = fmt.Sprintf("only the first %d members of %d are listed", MaxMembers, len(r.File))
			break
		}
		a.Members = append(a.Members, Member{Name: f.Name, Size: int64(f.UncompressedSize64), Mode: f.Mode()})
	}
	return a, nil
}

func (s Source) openZip(ctx context.Context, name string) (Content, error) {
	r, err := s.zip()
	if err != nil {
		return Content{}, err
	}
	for _, f := range r.File {
		if !same(f.Name, name) || strings.HasSuffix(f.Name, "/") {
			continue
		}
		switch {
		case f.Flags&1 != 0:
			return Content{}, errors.New("it is encrypted: extract it with its password")
		case f.Mode()&fs.ModeSymlink != 0:
			return Content{}, errors.New("it is a symbolic link")
		}
		return s.zipMember(ctx, f)
	}
	return Content{}, ErrNoMember
}

func (s Source) zipMember(ctx context.Context, f *zip.File) (Content, error) {
	size := int64(f.UncompressedSize64)
	if size < 0 {
		return Content{}, ErrTooLarge
	}
	if f.Method == zip.Store && f.CompressedSize64 == f.UncompressedSize64 {
		off, err := f.DataOffset()
		if err != nil {
			return Content{}, fmt.Errorf("reading the zip archive: %w", err)
		}
		if off > s.Size || size > s.Size-off {
			return Content{}, errors.New("reading the zip archive: it is cut")
		}
		return Content{io.NewSectionReader(s.ReaderAt, off, size), size}, nil
	}
	body, err := f.Open()
	if err != nil {
		return Content{}, fmt.Errorf("reading the zip archive: %w", err)
	}
	defer body.Close()
	content, err := load(ctx, body, size)
	if err != nil && !errors.Is(err, ErrTooLarge) && ctx.Err() == nil {
		err = fmt.Errorf("reading the zip archive: %w", err)
	}
	return content, err
}
