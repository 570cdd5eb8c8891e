// Package archive lists zip and tar archives, the latter also compressed, and opens what is in
// them. A compressed file that is no archive is one with a single member.
//
// # Promises
//
//   - Nothing is written, and no name of a member becomes a path.
//   - Memory and time are bounded whatever an archive claims: it is asked for [MaxMembers] members
//     and, where it is compressed as a whole, [MaxScan] bytes of its content; a listing that
//     ends there says so. A compressed member is held in memory, up to [MaxMember] bytes; one that
//     is stored as it is may have any size.
//   - What an archive says is checked as far as its format has checksums.
//
// All functions are safe for concurrent use.
package archive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// Limits of what is looked at.
const (
	// MaxMembers is how many members a listing has.
	MaxMembers = 100_000
	// MaxScan is how many bytes of content are passed over for a listing, or to find a member.
	MaxScan = 1 << 30
	// MaxMember is the largest member that is decompressed, in bytes.
	MaxMember = 64 << 20
	// maxDirectory is the largest directory of a zip archive, in bytes.
	maxDirectory = 16 << 20
)

// maxNames is how many bytes the names in a listing have: one of tar may have a million. Tests
// change it.
var maxNames = 16 << 20

// Format is how an archive is written down; "" is none.
type Format string

// Formats.
const (
	Zip      Format = "zip"
	Tar      Format = "tar"
	TarGzip  Format = "tar.gz"
	TarZstd  Format = "tar.zst"
	TarBzip2 Format = "tar.bz2"
	Gzip     Format = "gzip"
	Zstd     Format = "zstd"
	Bzip2    Format = "bzip2"
)

// Window is how many of the first bytes Detect wants.
const Window = 512

// Member is what an archive has.
type Member struct {
	Name string // as it is in the archive: it may be anything
	Size int64  // -1 when the archive does not say
	Mode fs.FileMode
	Link string // what a link names
}

// Archive is a listing.
type Archive struct {
	Format  Format
	Members []Member
	// Cut says why members are missing; "" when none is.
	Cut string
}

// Errors.
var (
	// ErrNoMember is matched by the error for a name that an archive does not have.
	ErrNoMember = errors.New("it has no such member")
	// ErrTooLarge is returned for what is beyond the limits.
	ErrTooLarge = errors.New("it is too large to be read within the archive: extract it")
)

// Source is an archive.
type Source struct {
	io.ReaderAt
	Size   int64
	Name   string // of its file; a member of a compressed file is named for it
	Format Format
}

// Detect names the format by the first bytes, Window of them or all. Whether something that
// is compressed is an archive shows when it is opened: Detect says Gzip, Zstd or Bzip2.
func Detect(head []byte) Format {
	for _, s := range []struct {
		prefix string
		format Format
	}{{"PK\x03\x04", Zip}, {"PK\x05\x06", Zip}, {"\x1f\x8b\x08", Gzip}, {"\x28\xb5\x2f\xfd", Zstd}, {"BZh", Bzip2}} {
		if bytes.HasPrefix(head, []byte(s.prefix)) {
			return s.format
		}
	}
	if len(head) >= 262 && string(head[257:262]) == "ustar" {
		return Tar
	}
	return ""
}

// List lists an archive.
func (s Source) List(ctx context.Context) (Archive, error) {
	if s.Format == Zip {
		return s.listZip()
	}
	return s.listStream(ctx)
}

// Content is an open member.
type Content struct {
	io.ReaderAt
	Size int64
}

// Open opens a member by its name. The error matches ErrNoMember when there is none.
func (s Source) Open(ctx context.Context, name string) (Content, error) {
	if s.Format == Zip {
		return s.openZip(ctx, name)
	}
	return s.openStream(ctx, name)
}

// same reports whether a member is the one that is meant.
func same(member, name string) bool { return plain(member) == plain(name) }

// plain is a name without what says nothing.
func plain(name string) string {
	name = strings.TrimLeft(name, "/")
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}

// Has reports whether there is a member of that name.
func (a *Archive) Has(name string) bool {
	return slices.ContainsFunc(a.Members, func(m Member) bool { return same(m.Name, name) })
}

// Below are the members within a directory of the archive; of the whole for "".
func (a *Archive) Below(dir string) []Member {
	dir = strings.TrimSuffix(plain(dir), "/")
	if dir == "" {
		return a.Members
	}
	var list []Member
	for _, m := range a.Members {
		if rest, ok := strings.CutPrefix(plain(m.Name), dir+"/"); ok && rest != "" {
			list = append(list, m)
		}
	}
	return list
}

var errMember = fmt.Errorf("it has more than 64 MiB: %w", ErrTooLarge)

// load takes a member into memory.
func load(ctx context.Context, r io.Reader, claimed int64) (Content, error) {
	if claimed > MaxMember {
		return Content{}, errMember
	}
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(cancelled{ctx, r}, MaxMember+1))
	if err != nil {
		return Content{}, err
	}
	if n > MaxMember {
		return Content{}, errMember
	}
	return Content{bytes.NewReader(b.Bytes()), n}, nil
}

// cancelled ends a read when ctx is.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c cancelled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
