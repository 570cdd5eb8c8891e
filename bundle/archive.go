package bundle

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/session"
)

// ErrRefused is wrapped by every error about a bundle itself: nothing of it was
// written.
var ErrRefused = errors.New("the bundle is refused")

var errTruncated = errors.New("it ends too early: copy it again")

// archive reads the members of a bundle, each once, in order, and judges them.
type archive struct {
	plain io.Reader // decompressed
	tar   *tar.Reader
	seen  names
	last  kind
	total int64 // bytes of members so far, the one at hand included
	max   int64
	close func() error
}

// openArchive opens a bundle that r has from its beginning. unlock is nil for one
// that is not encrypted.
func openArchive(r io.Reader, unlock *unlocker, limit int64) (*archive, error) {
	if unlock != nil {
		var err error
		if r, err = unlock.open(r); err != nil {
			return nil, err
		}
	}
	frames, err := newFrameReader(r)
	if err != nil {
		return nil, err
	}
	a := newArchive(frames, limit)
	a.close = frames.Close
	return a, nil
}

// newArchive reads a bundle that is decompressed.
func newArchive(plain io.Reader, limit int64) *archive {
	// What is around the members, too: headers of members that never come are no way
	// around the limit.
	all := &io.LimitedReader{R: plain, N: min(limit, math.MaxInt64-maxAround) + maxAround}
	return &archive{plain: plain, tar: tar.NewReader(all), seen: names{}, max: limit}
}

// maxAround is how many bytes the headers and the padding of maxMembers members may
// take.
const maxAround = 4 << 30

// next goes on to the next member. The error is io.EOF behind the last one, when
// nothing follows it.
func (a *archive) next() (m member, k kind, rel string, err error) {
	h, err := a.tar.Next()
	if err == io.EOF {
		var more [1]byte
		if _, err := io.ReadFull(a.plain, more[:]); err != io.EOF {
			if err == nil {
				err = errors.New("something stands behind its end")
			}
			return m, 0, "", err
		}
		return m, 0, "", io.EOF
	}
	if err != nil {
		return m, 0, "", describe(err)
	}
	if err := regular(h); err != nil {
		return m, 0, "", err
	}
	if k, rel, err = parseName(h.Name); err != nil {
		return m, 0, "", err
	}
	if err := a.seen.add(h.Name); err != nil {
		return m, 0, "", err
	}
	switch {
	case len(a.seen) > 2*maxMembers:
		return m, 0, "", fmt.Errorf("it has more than %d members", maxMembers)
	case k < a.last, a.last == kindManifest, a.total == 0 && k != kindAbout:
		return m, 0, "", fmt.Errorf("%q does not stand where it has to", h.Name)
	case k == kindAbout && h.Size > maxAbout, k == kindManifest && h.Size > maxManifest:
		return m, 0, "", fmt.Errorf("%q is too large", h.Name)
	}
	a.last = k
	if a.total += h.Size; a.total > a.max || a.total < 0 {
		return m, 0, "", &TooLargeError{Max: a.max}
	}
	return member{Name: h.Name, Bytes: h.Size}, k, rel, nil
}

// TooLargeError says that a bundle unpacks to more than is allowed.
type TooLargeError struct{ Max int64 }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("it unpacks to more than %d bytes: if it comes from somebody you trust, allow more with --max-bytes", e.Max)
}

// regular refuses what is no plain file.
func regular(h *tar.Header) error {
	kind := ""
	switch h.Typeflag {
	case tar.TypeReg:
	case tar.TypeLink:
		kind = "a hard link"
	case tar.TypeSymlink:
		kind = "a symbolic link"
	case tar.TypeDir:
		kind = "a directory"
	case tar.TypeChar, tar.TypeBlock:
		kind = "a device"
	case tar.TypeFifo:
		kind = "a FIFO"
	default:
		kind = "of a type that no bundle has"
	}
	for key := range h.PAXRecords {
		if key != "path" && key != "size" && key != "mtime" {
			kind = "described by " + key
		}
	}
	if kind == "" && h.Linkname != "" {
		kind = "a link"
	}
	if kind != "" {
		return fmt.Errorf("%.200q is %s; a bundle holds plain files only", h.Name, kind)
	}
	return nil
}

// describe makes a sentence of an error of the layers below.
func describe(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errTruncated
	case errors.Is(err, tar.ErrHeader):
		return errors.New("it holds no tar archive")
	}
	return err
}

// content is what a bundle was found to hold.
type content struct {
	about    about
	manifest manifest
	sums     []uint32 // CRC-32C of each member of manifest, for the second reading
	head     []byte   // the first bytes of the log
}

func (c *content) hasBlobs() bool {
	return slices.ContainsFunc(c.manifest.Members, func(m member) bool { return strings.HasPrefix(m.Name, blobsDir) })
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// verify reads all of a bundle and checks everything that can be checked without
// writing anything.
func verify(ctx context.Context, a *archive) (*content, error) {
	c := &content{}
	var seen []member
	buf := make([]byte, 1<<20)
	for {
		m, k, rel, err := a.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var keep *bounded
		switch k {
		case kindAbout:
			keep = &bounded{room: maxAbout}
		case kindManifest:
			keep = &bounded{room: maxManifest}
		case kindLog:
			keep = &bounded{room: session.MaxHeadBytes}
		}
		hash, sum := sha256.New(), uint32(0)
		for {
			n, err := a.tar.Read(buf)
			hash.Write(buf[:n])
			sum = crc32.Update(sum, castagnoli, buf[:n])
			if keep != nil {
				keep.write(buf[:n])
			}
			if err == io.EOF {
				break
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, describe(err)
			}
		}
		hash.Sum(m.SHA256[:0])
		switch k {
		case kindAbout:
			if c.about, err = parseAbout(keep.data); err != nil {
				return nil, err
			}
		case kindLog:
			c.head = keep.data
			if err := session.CheckHead(c.head); err != nil {
				return nil, fmt.Errorf("its log cannot be opened: %w", err)
			}
		case kindBlob:
			if text, _ := m.SHA256.MarshalText(); string(text) != rel {
				return nil, fmt.Errorf("blob %s is not what its name says", rel)
			}
		case kindManifest:
			if c.manifest, err = parseManifest(keep.data); err != nil {
				return nil, err
			}
			continue // it does not list itself
		}
		seen, c.sums = append(seen, m), append(c.sums, sum)
	}
	if a.last != kindManifest {
		return nil, errTruncated
	}
	if _, ok := a.seen[logName]; !ok {
		return nil, errors.New("it holds no log")
	}
	return c, c.manifest.check(seen)
}

// bounded keeps the first bytes of what is written to it.
type bounded struct {
	data []byte
	room int
}

func (b *bounded) write(p []byte) {
	b.data = append(b.data, p[:min(len(p), b.room-len(b.data))]...)
}

// sniff looks whether a file is a bundle at all, and whether it is encrypted.
func sniff(r *bufio.Reader, encrypted bool) error {
	head, err := r.Peek(len(cryptMagic))
	if err != nil && err != io.EOF {
		return err
	}
	switch is := strings.HasPrefix(string(head), cryptMagic); {
	case is && !encrypted:
		return errors.New("it is encrypted: give --passphrase-file")
	case is:
		return nil
	case len(head) < lengthSize || string(head[:8]) != string(appendLength(nil, 0)[:8]):
		return errors.New("it is no bundle of agentrun")
	case encrypted:
		return errors.New("it is not encrypted, though a passphrase was given: whoever changed it may not have known one; leave out --passphrase-file to import it all the same")
	}
	return nil
}
