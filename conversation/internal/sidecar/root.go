package sidecar

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agentrun/agentrun/blobref"
)

// Root is the sidecar of one state.
type Root struct {
	Head  Tree // of chunks: what stands before the first entry
	Body  Tree // of chunks: the rest
	Turns Tree // in the order of the path
	// Digest is that of the state without its sidecar, as it was projected: with
	// another one somebody else has changed the state since.
	Digest [32]byte
	Files  blobref.Ref // zero for none
	// Open is the length of a last line without a newline.
	Open uint64
}

// Append writes the root.
func (r Root) Append(b []byte) []byte {
	b = appendUint(b, 1, Version)
	for i, t := range []Tree{r.Head, r.Body, r.Turns} {
		b = protowire.AppendBytes(protowire.AppendTag(b, protowire.Number(2+i), protowire.BytesType), t.append(nil))
	}
	b = protowire.AppendBytes(protowire.AppendTag(b, 5, protowire.BytesType), r.Digest[:])
	if !r.Files.IsZero() {
		b = appendID(b, 6, r.Files)
	}
	return appendUint(b, 7, r.Open)
}

// ParseRoot reads a root. The error matches ErrFormat for other bytes, and for a
// version that is not understood here.
func ParseRoot(b []byte) (r Root, err error) {
	version := uint64(0)
	err = fields(b, func(n protowire.Number, v uint64, data []byte) (err error) {
		switch n {
		case 1:
			version = v
		case 2:
			r.Head, err = parseTree(data)
		case 3:
			r.Body, err = parseTree(data)
		case 4:
			r.Turns, err = parseTree(data)
		case 5:
			if len(data) != len(r.Digest) {
				return fmt.Errorf("a digest of %d bytes: %w", len(data), ErrFormat)
			}
			r.Digest = [32]byte(data)
		case 6:
			r.Files, err = parseID(data)
		case 7:
			r.Open = v
		}
		return err
	})
	switch {
	case err != nil:
		return Root{}, err
	case version != Version:
		return Root{}, fmt.Errorf("version %d, and version %d is understood: %w", version, Version, ErrFormat)
	case r.Head.Weight > math.MaxInt64/2 || r.Body.Weight > math.MaxInt64/2:
		return Root{}, fmt.Errorf("a log of %d bytes: %w", r.Body.Weight, ErrFormat)
	}
	return r, nil
}

// File is a file beside the log.
type File struct {
	Name   string // relative, with slashes
	Bytes  uint64
	Pieces []blobref.Ref
}

// AppendFiles writes the list of files.
func AppendFiles(b []byte, files []File) []byte {
	for _, f := range files {
		one := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), f.Name)
		one = appendUint(one, 2, f.Bytes)
		var ids []byte
		for _, id := range f.Pieces {
			sum := id.Sum()
			ids = append(ids, sum[:]...)
		}
		one = protowire.AppendBytes(protowire.AppendTag(one, 3, protowire.BytesType), ids)
		b = protowire.AppendBytes(protowire.AppendTag(b, 1, protowire.BytesType), one)
	}
	return b
}

// ParseFiles reads the list of files. Names are as they stand there: hostile.
func ParseFiles(b []byte) (files []File, err error) {
	err = fields(b, func(n protowire.Number, _ uint64, data []byte) error {
		if n != 1 {
			return nil
		}
		var f File
		err := fields(data, func(n protowire.Number, v uint64, data []byte) error {
			switch n {
			case 1:
				f.Name = string(data)
			case 2:
				f.Bytes = v
			case 3:
				if len(data)%32 != 0 {
					return fmt.Errorf("pieces of %d bytes: %w", len(data), ErrFormat)
				}
				for ; len(data) > 0; data = data[32:] {
					f.Pieces = append(f.Pieces, blobref.FromSum([32]byte(data)))
				}
			}
			return nil
		})
		files = append(files, f)
		return err
	})
	return files, err
}
