package faultstore

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Open opens the blob. With Damage it hands out damaged bytes; with After it fails
// after half of them.
func (s *Store) Open(ctx context.Context, ref blobref.Ref) (blobstore.Blob, error) {
	fault, err := s.begin(ctx, Open, ref)
	if err = errors.Join(err, fault.Cut); err != nil {
		return nil, err
	}
	if err := s.corrupt(ref); err != nil {
		return nil, err
	}
	b, err := blobstore.Open(ctx, s.inner, ref)
	if err != nil || fault.Damage == nil && fault.After == nil {
		return b, err
	}
	defer b.Close()
	data := make([]byte, b.Size())
	if _, err := io.ReadFull(b, data); err != nil {
		return nil, err
	}
	size := int64(len(data))
	if fault.Damage != nil {
		data = fault.Damage(data)
		size = int64(len(data))
	}
	if fault.After != nil {
		data = data[:len(data)/2]
	}
	return &brokenBlob{Reader: bytes.NewReader(data), size: size, err: fault.After}, nil
}

// brokenBlob ends with err, when there is one, where its bytes do.
type brokenBlob struct {
	*bytes.Reader
	size int64
	err  error
}

func (b *brokenBlob) Size() int64  { return b.size }
func (b *brokenBlob) Close() error { return nil }

func (b *brokenBlob) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	return n, b.end(err)
}

func (b *brokenBlob) ReadAt(p []byte, off int64) (int, error) {
	n, err := b.Reader.ReadAt(p, off)
	return n, b.end(err)
}

// WriteTo hides that of bytes.Reader, which knows no error.
func (b *brokenBlob) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b})
}

func (b *brokenBlob) end(err error) error {
	if err == io.EOF && b.err != nil {
		return b.err
	}
	return err
}
