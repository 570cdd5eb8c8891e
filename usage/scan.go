package usage

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
)

// scanBytes is how much of a log is looked at at once.
const scanBytes = 1 << 20

// headBytes is how much of a line says what tool its entry is of: the envelope and
// the first members of a message come before its content.
const headBytes = 1 << 10

// maxWindow bounds the memory that a compressed log may ask for.
const maxWindow = 64 << 20

// scan is what a log says about space.
type scan struct {
	refs  map[blobref.Ref]bool
	tools map[string]int64 // bytes of lines by tool, before compression
}

// scanLog reads a log, compressed or not. It looks for references anywhere in the
// text, so that it finds those of damaged lines and of other programs too.
func scanLog(ctx context.Context, fsys durable.FS, path string) (scan, error) {
	s := scan{refs: map[blobref.Ref]bool{}, tools: map[string]int64{}}
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return s, fmt.Errorf("looking into %s: %w", path, err)
	}
	defer f.Close()
	r, done, err := decompressed(path, f)
	if err == nil {
		defer done()
		err = s.read(ctx, r)
	}
	if err != nil {
		var disk *fs.PathError
		if strings.HasSuffix(path, ".jsonl.zst") && ctx.Err() == nil && !errors.As(err, &disk) {
			return s, fmt.Errorf("looking into %s: %w; agentrun doctor --repair %[1]s mends it", path, err)
		}
		return s, fmt.Errorf("looking into %s: %w", path, err)
	}
	return s, nil
}

func decompressed(path string, f io.Reader) (io.Reader, func(), error) {
	switch {
	case strings.HasSuffix(path, ".zst"):
		d, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	case strings.HasSuffix(path, ".gz"):
		d, err := gzip.NewReader(f)
		if err != nil {
			return nil, nil, err
		}
		return d, func() {}, nil
	}
	return f, func() {}, nil
}

// read takes the text in pieces. Each begins with the end of the one before, in
// which a reference may have begun.
func (s *scan) read(ctx context.Context, r io.Reader) error {
	const overlap = blobref.TextLen - 1
	buf := make([]byte, overlap+scanBytes)
	line := openLine{}
	for kept := 0; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(r, buf[kept:])
		s.citations(buf[:kept+n])
		line.take(buf[kept:kept+n], s.tools)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			line.end(s.tools)
			return nil
		}
		if err != nil {
			return err
		}
		kept = copy(buf, buf[kept+n-overlap:kept+n])
	}
}

func (s *scan) citations(b []byte) {
	for {
		i := bytes.Index(b, []byte(blobref.Prefix))
		if i < 0 || len(b) < i+blobref.TextLen {
			return
		}
		if ref, err := blobref.Parse(string(b[i : i+blobref.TextLen])); err == nil {
			s.refs[ref] = true
		}
		b = b[i+len(blobref.Prefix):]
	}
}

// openLine is a line of which not all was seen.
type openLine struct {
	head []byte
	size int64
	mark []byte // of what was folded there, as far as it was seen
}

// foldMark begins and ends what stands in a compressed log for a text that it
// repeats: package session describes it. JSON has no such byte.
const (
	foldMark = 0x1a
	maxMark  = blobref.TextLen + 10
)

func (l *openLine) take(b []byte, tools map[string]int64) {
	for len(b) > 0 {
		if len(l.mark) == 0 {
			i := bytes.IndexByte(b, foldMark)
			if i < 0 {
				l.text(b, tools)
				return
			}
			l.text(b[:i], tools)
			l.mark, b = append(l.mark, foldMark), b[i+1:]
			l.size++
			continue
		}
		rest := b[:min(len(b), maxMark+1-len(l.mark))]
		i := bytes.IndexByte(rest, foldMark)
		if i >= 0 {
			rest = b[:i+1]
		}
		l.mark = append(l.mark, rest...)
		l.size += int64(len(rest))
		b = b[len(rest):]
		if n, ok := folded(l.mark); ok && i >= 0 {
			l.size += n - int64(len(l.mark))
		}
		if i >= 0 || len(l.mark) > maxMark {
			l.mark = l.mark[:0]
		}
	}
}

// folded is how much a mark stands for.
func folded(mark []byte) (size int64, ok bool) {
	ref, n, ok := bytes.Cut(mark[1:len(mark)-1], []byte{','})
	if !ok || len(ref) != blobref.TextLen {
		return 0, false
	}
	v, err := strconv.ParseUint(string(n), 10, 31)
	return int64(v), err == nil
}

func (l *openLine) text(b []byte, tools map[string]int64) {
	for len(b) > 0 {
		n, ended := len(b), false
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			n, ended = i+1, true
		}
		l.head = append(l.head, b[:min(n, headBytes-len(l.head))]...)
		l.size += int64(n)
		if b = b[n:]; ended {
			l.end(tools)
		}
	}
}

func (l *openLine) end(tools map[string]int64) {
	if l.size > 0 {
		tools[toolOf(l.head)] += l.size
	}
	l.head, l.mark, l.size = l.head[:0], l.mark[:0], 0
}

// conversation is what lines are of that no tool wrote.
const conversation = "(conversation)"

// toolOf says which tool an entry is of, by the beginning of its line as all
// programs of the format write it.
func toolOf(head []byte) string {
	if bytes.Contains(head, []byte(`"role":"bashExecution"`)) {
		return "bash"
	}
	if !bytes.Contains(head, []byte(`"role":"toolResult"`)) {
		return conversation
	}
	_, rest, _ := bytes.Cut(head, []byte(`"toolName":"`))
	name, _, ok := bytes.Cut(rest, []byte{'"'})
	if !ok || len(name) == 0 {
		return "(unknown tool)"
	}
	return string(name)
}
