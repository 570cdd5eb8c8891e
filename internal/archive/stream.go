package archive

import (
	"archive/tar"
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxWindow is the largest window of zstd that is decompressed: what zstd itself takes
// without being asked.
const maxWindow = 128 << 20

// stream is an archive that is read from its beginning.
type stream struct {
	format Format
	tar    *tar.Reader // nil for a file that is compressed alone
	body   io.Reader   // that file
	name   string      // its name
	at     *position   // in the archive, where that is not compressed
	close  func()
}

// position is a reader that knows where it is, and seeks.
type position struct{ *io.SectionReader }

func (p *position) offset() int64 {
	off, _ := p.Seek(0, io.SeekCurrent) // of a section it does not fail
	return off
}

// scanLimit is MaxScan. Tests change it.
var scanLimit int64 = MaxScan

// errScan ends a scan that has gone on for long enough.
var errScan = errors.New("enough was read")

// scanned bounds how much is decompressed.
type scanned struct {
	r    io.Reader
	left int64
}

func (s *scanned) Read(p []byte) (int, error) {
	if s.left <= 0 {
		return 0, errScan
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	return n, err
}

func (s Source) stream(ctx context.Context) (*stream, error) {
	file := &position{io.NewSectionReader(s.ReaderAt, 0, s.Size)}
	if s.Format == Tar {
		return &stream{format: Tar, tar: tar.NewReader(file), at: file, close: func() {}}, nil
	}
	t := &stream{format: s.Format, close: func() {}, name: stem(s.Name)}
	var plain io.Reader
	packed := bufio.NewReaderSize(cancelled{ctx, file}, 64<<10)
	switch s.Format {
	case Gzip:
		z, err := gzip.NewReader(packed)
		if err != nil {
			return nil, fmt.Errorf("decompressing it: %w", err)
		}
		if z.Name != "" && !strings.ContainsAny(z.Name, "/\\\n") {
			t.name = z.Name
		}
		plain = z
	case Zstd:
		z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("decompressing it: %w", err)
		}
		plain, t.close = z, z.Close
	case Bzip2:
		plain = bzip2.NewReader(packed)
	default:
		return nil, fmt.Errorf("%q is no format of archives", s.Format)
	}
	content := bufio.NewReaderSize(&scanned{cancelled{ctx, plain}, scanLimit}, Window)
	head, err := content.Peek(Window)
	if err != nil && err != io.EOF {
		t.close()
		return nil, fmt.Errorf("decompressing it: %w", err)
	}
	if Detect(head) == Tar {
		t.format = map[Format]Format{Gzip: TarGzip, Zstd: TarZstd, Bzip2: TarBzip2}[s.Format]
		t.tar = tar.NewReader(content)
		return t, nil
	}
	t.body = content
	return t, nil
}

// stem is what the content of a compressed file is called.
func stem(name string) string {
	base := path.Base(name)
	for _, ext := range []string{".gz", ".zst", ".bz2", ".gzip", ".zstd"} {
		if rest, ok := strings.CutSuffix(base, ext); ok && rest != "" {
			return rest
		}
	}
	return "content"
}

func (s Source) listStream(ctx context.Context) (Archive, error) {
	t, err := s.stream(ctx)
	if err != nil {
		return Archive{}, err
	}
	defer t.close()
	a := Archive{Format: t.format}
	names := 0
	if t.tar == nil {
		a.Members = []Member{{Name: t.name, Size: -1}}
		return a, nil
	}
	for {
		h, err := t.tar.Next()
		switch {
		case err == io.EOF:
			return a, nil
		case errors.Is(err, errScan):
			a.Cut = fmt.Sprintf("only the first %d members are listed, for the next is behind 1 GiB of content", len(a.Members))
			return a, nil
		case ctx.Err() != nil:
			return a, ctx.Err()
		case err != nil && len(a.Members) > 0:
			a.Cut = fmt.Sprintf("the archive is damaged behind member %d: %v", len(a.Members), err)
			return a, nil
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return a, fmt.Errorf("reading the tar archive: %w", err)
		case len(a.Members) == MaxMembers:
			a.Cut = fmt.Sprintf("only the first %d members are listed", MaxMembers)
			return a, nil
		}
		if names += len(h.Name) + len(h.Linkname); names > maxNames {
			a.Cut = fmt.Sprintf("only the first %d members are listed, for the names have more than 16 MiB", len(a.Members))
			return a, nil
		}
		a.Members = append(a.Members, Member{Name: h.Name, Size: h.Size, Mode: h.FileInfo().Mode(), Link: h.Linkname})
	}
}

func (s Source) openStream(ctx context.Context, name string) (Content, error) {
	t, err := s.stream(ctx)
	if err != nil {
		return Content{}, err
	}
	defer t.close()
	if t.tar == nil {
		if !same(t.name, name) {
			return Content{}, ErrNoMember
		}
		content, err := load(ctx, t.body, 0)
		if err != nil && !errors.Is(err, ErrTooLarge) && ctx.Err() == nil {
			err = fmt.Errorf("decompressing it: %w", err)
		}
		return content, err
	}
	for {
		h, err := t.tar.Next()
		switch {
		case err == io.EOF:
			return Content{}, ErrNoMember
		case errors.Is(err, errScan):
			return Content{}, fmt.Errorf("it is not within the first 1 GiB of the content: %w", ErrTooLarge)
		case ctx.Err() != nil:
			return Content{}, ctx.Err()
		case err != nil && !errors.Is(err, tar.ErrInsecurePath):
			return Content{}, fmt.Errorf("reading the tar archive: %w", err)
		case !same(h.Name, name) || h.Typeflag == tar.TypeDir:
			continue
		}
		switch {
		case h.Typeflag == tar.TypeSymlink, h.Typeflag == tar.TypeLink:
			return Content{}, fmt.Errorf("it is a link to %.200q", h.Linkname)
		case h.FileInfo().Mode()&fs.ModeType != 0:
			return Content{}, errors.New("it is no regular file")
		}
		// Sparse files are put together by tar itself.
		if t.at != nil && h.Typeflag == tar.TypeReg && !sparse(h) {
			if off := t.at.offset(); off <= s.Size && h.Size <= s.Size-off {
				return Content{io.NewSectionReader(s.ReaderAt, off, h.Size), h.Size}, nil
			}
			return Content{}, errors.New("reading the tar archive: it is cut")
		}
		content, err := load(ctx, t.tar, h.Size)
		if err != nil && !errors.Is(err, ErrTooLarge) && ctx.Err() == nil {
			err = fmt.Errorf("reading the tar archive: %w", err)
		}
		return content, err
	}
}

func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}
