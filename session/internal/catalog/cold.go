package catalog

import (
	"io"
	"sync"

	seekable "github.com/SaveTheRbtz/zstd-seekable-format-go/pkg"
	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/internal/durable"
)

// Bounds of what a hostile frame can ask for. The frames and windows of
// agentrun's own logs are far smaller.
const (
	maxWindow = 8 << 20
	maxFrame  = 16 << 20
)

// decoders are costly to make and cheap to reset.
var decoders = sync.Pool{New: func() any {
	// With these options NewReader has nothing to fail at.
	d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(maxFrame))
	return d
}}

// readColdHead is readPlainHead for a compressed log.
func readColdHead(in durable.File) (head, error) {
	d := decoders.Get().(*zstd.Decoder)
	defer decoders.Put(d)
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if err := d.Reset(in); err != nil {
		return head{}, err
	}
	hd, updated, read, err := readHead(d, (*buf)[:0:headBytes])
	_ = d.Reset(nil) // lets go of the file; there is nothing to fail at
	if err != nil || hd.ID == "" {
		return hd, err
	}
	if hd.Title == "" {
		hd.First = firstOf(read)
	}
	// A log that somebody compressed without a seek table keeps the title of its
	// first lines: reading all of it for a later one would cost too much.
	if tail, err := readColdTail(in, d, (*buf)[:tailBytes]); err == nil {
		read = tail
	}
	hd.retitle(read, updated)
	return hd, nil
}

func readColdTail(in io.ReadSeeker, d *zstd.Decoder, buf []byte) ([]byte, error) {
	r, err := seekable.NewReader(in, d)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	size, err := r.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	return readTail(r, buf, size)
}
