package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"unsafe"

	"github.com/agentrun/agentrun/session/internal/record"
)

// blockSize is how much of a file one worker parses at a time: small enough to
// stay in the cache between the search for line ends, the checksum and the
// parse, large enough that the hand-over costs nothing.
const blockSize = 1 << 20

// source is the readable content of a session: the file itself, a compressed
// file, or the migrated image of an old one.
type source struct {
	io.ReaderAt
	size int64
}

// segment is what one worker found among the lines that start in its block.
type segment struct {
	nodes  []node // idOff and line count from this segment's start
	arena  []byte // ids, and parents of nodes, behind each other
	parent []span // of each node, in arena; empty means null
	hash   []uint32
	lines  int
	damage damageList // lines count from this segment's start
	// headers holds, for each repeated header, how many nodes came before it.
	headers []int
	cites   []citing // in the order of the nodes; empty unless asked for
	cited   bool     // asked for
	look    bool     // the line at hand may cite something
	// unsealed counts the entries without a crc.
	unsealed int
	err      error
}

type span struct{ off, len uint32 }

func (s span) in(arena []byte) []byte { return arena[s.off : s.off+s.len] }

// alias returns b as a string without a copy. b must never change again.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// scan parses the lines that start in [from, to) and hands them to each in file
// order, one segment at a time. It uses every core. With cites it also notes what
// entries refer to outside of the log.
func scan(ctx context.Context, src source, from, to int64, cites bool, each func(*segment) error) error {
	return inBlocks(ctx, from, to, func() func(a, b int64) *segment {
		var buf []byte
		return func(a, b int64) (seg *segment) {
			seg, buf = scanBlock(src, from, a, b, to, cites, buf)
			return seg
		}
	}, func(seg *segment) error {
		if seg.err != nil {
			return seg.err
		}
		return each(seg)
	})
}

// inBlocks makes something of every block of [from, to), on every core, and hands it
// to each in their order. Each of the workers calls worker once, for what it then
// calls one block after another.
func inBlocks[T any](ctx context.Context, from, to int64, worker func() func(a, b int64) T, each func(T) error) error {
	if from >= to {
		return nil
	}
	workers := min(runtime.GOMAXPROCS(0), int((to-from+blockSize-1)/blockSize))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// Every block has a place in the queue before any worker takes it, so that
	// the results come back in order while at most 2*workers exist.
	type job struct {
		a, b int64
		out  chan T
	}
	jobs := make(chan job)
	order := make(chan chan T, 2*workers)
	go func() {
		defer close(jobs)
		defer close(order)
		for a := from; a < to; a += blockSize {
			j := job{a, min(a+blockSize, to), make(chan T, 1)}
			select {
			case order <- j.out:
			case <-ctx.Done():
				return
			}
			select {
			case jobs <- j:
			case <-ctx.Done():
				close(j.out)
				return
			}
		}
	}()
	done := make(chan struct{}, workers)
	for range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			work := worker()
			for j := range jobs {
				j.out <- work(j.a, j.b)
			}
		}()
	}
	var err error
	for out := range order {
		made, ok := <-out
		if err != nil || !ok {
			continue // drain, so that nobody is left waiting
		}
		if err = each(made); err != nil {
			cancel()
		}
	}
	for range workers {
		<-done
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// scanBlock parses the lines that start in [a, b) of [from, end).
func scanBlock(src source, from, a, b, end int64, cites bool, buf []byte) (*segment, []byte) {
	seg := &segment{cited: cites}
	lines, start, err := blockLines(src, from, a, b, end, buf)
	if err != nil || len(lines) == 0 {
		seg.err = err
		return seg, buf
	}
	seg.nodes = make([]node, 0, len(lines)/512+8)
	seg.parent = make([]span, 0, cap(seg.nodes))
	seg.hash = make([]uint32, 0, cap(seg.nodes))
	seg.arena = make([]byte, 0, 48*cap(seg.nodes))
	next := len(lines) // where the next word of a citation is
	if cites {
		next = citeWords.next(lines)
	}
	at := 0
	for line := range bytes.Lines(lines) {
		if next < at {
			next = at + citeWords.next(lines[at:])
		}
		seg.look = next < at+len(line)
		seg.addLine(bytes.TrimSuffix(line, newline), start+int64(at))
		at += len(line)
	}
	return seg, lines[:0]
}

// blockLines reads the lines that start in [a, b), whole, and says where the first
// one starts. Lines start at from and behind every newline, and the last one may
// reach beyond b, up to end. It reads into buf, or a larger buffer.
func blockLines(src source, from, a, b, end int64, buf []byte) (lines []byte, start int64, err error) {
	start = a
	if a > from {
		start-- // the byte before a says whether a line starts at a
	}
	if buf, err = readSpan(src, start, b, buf); err != nil {
		return nil, 0, err
	}
	at := 0
	if a > from {
		i := bytes.IndexByte(buf, '\n')
		if i < 0 || start+int64(i)+1 >= b {
			return nil, 0, nil // a longer line runs through
		}
		at = i + 1
	}
	// The last line may go on in the blocks behind.
	for grow := int64(4 << 10); start+int64(len(buf)) < end && buf[len(buf)-1] != '\n'; grow *= 4 {
		have, old := start+int64(len(buf)), len(buf)
		if buf, err = appendSpan(src, have, min(have+grow, end), buf); err != nil {
			return nil, 0, err
		}
		if i := bytes.IndexByte(buf[old:], '\n'); i >= 0 {
			buf = buf[:old+i+1]
		}
	}
	return buf[at:], start + int64(at), nil
}

// addLine takes one line, without its newline.
func (s *segment) addLine(line []byte, off int64) {
	n := s.lines
	s.lines++
	eachRecord(line, func(raw []byte, at int, e record.Envelope) {
		s.addRecord(raw, e, off+int64(at), n)
	}, func(at, size int, kind Kind) {
		s.damage.add(Damage{Line: n, Offset: off + int64(at), Bytes: int64(size), Kind: kind})
	})
}

// eachRecord hands every entry, header or slot in a line to good, with its place
// in the line, and what is damaged to bad, which may be nil.
func eachRecord(line []byte, good func(raw []byte, at int, e record.Envelope), bad func(at, size int, kind Kind)) {
	e, err := record.Parse(line)
	if err == nil && (len(e.ID) > 0 || e.IsSlot()) {
		good(line, 0, e)
		return
	}
	switch {
	case err == nil:
		err = record.ErrNoType // an object without an id is no entry either
		fallthrough
	case errors.Is(err, record.ErrNoType), errors.Is(err, record.ErrScalar):
		if bad != nil {
			bad(0, len(line), record.KindOf(err))
		}
	case bytes.IndexByte(line, '{') < 0 && bytes.IndexByte(line, 0) < 0:
		// There is no record in it to look for.
		if bad != nil && !errors.Is(err, record.ErrBlank) {
			bad(0, len(line), KindGarbage)
		}
	case errors.Is(err, record.ErrSyntax):
		for _, p := range record.Split(line) {
			if p.Kind != "" {
				if bad != nil {
					bad(p.Off, p.Len, p.Kind)
				}
				continue
			}
			part := line[p.Off : p.Off+p.Len]
			if e, err := record.Parse(part); err == nil && len(e.ID) > 0 {
				good(part, p.Off, e)
			}
		}
	}
}

func (s *segment) addRecord(raw []byte, e record.Envelope, off int64, line int) {
	if e.IsHeader() {
		s.headers = append(s.headers, len(s.nodes))
		return
	}
	if e.IsSlot() {
		return
	}
	s.nodes = append(s.nodes, node{
		off: off, size: uint32(len(raw)), line: uint32(line),
		id: s.intern(e.ID), kind: kindOf(e.Type), parent: noParent,
	})
	s.parent = append(s.parent, s.intern(e.Parent))
	s.hash = append(s.hash, hash(e.ID))
	if s.look {
		s.cite(raw)
	}
	switch e.CRC {
	case record.CRCNone:
		if !s.cited || !record.BrokenSeal(raw) {
			s.unsealed++
			break
		}
		fallthrough
	case record.CRCMismatch:
		s.damage.add(Damage{Line: line, Offset: off, Bytes: int64(len(raw)), Kind: KindChecksum, ID: string(e.ID)})
	}
}

func (s *segment) intern(b []byte) span {
	at := len(s.arena)
	s.arena = append(s.arena, b...)
	return span{uint32(at), uint32(len(b))}
}

// readSpan reads [a, b) into buf, which it may replace by a larger one.
func readSpan(src source, a, b int64, buf []byte) ([]byte, error) {
	return appendSpan(src, a, b, buf[:0])
}

// slack is room for the rest of the last line of a block.
const slack = 5 << 10

func appendSpan(src source, a, b int64, buf []byte) ([]byte, error) {
	n, need := len(buf), int(b-a)
	if cap(buf)-n < need {
		grown := make([]byte, n, max(n+need+slack, 2*n))
		copy(grown, buf)
		buf = grown
	}
	buf = buf[:n+need]
	got, err := src.ReadAt(buf[n:], a)
	if got < need {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return buf[:n], fmt.Errorf("reading %d bytes at %d: %w", need, a, err)
	}
	return buf, nil
}
