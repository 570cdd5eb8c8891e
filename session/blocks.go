package session

import (
	"bytes"
	"context"
	"runtime"
	"sync"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// pathBlock is how much of a long path is parsed at a time. It is smaller than
// the cache of a core: every byte is looked at three times.
const pathBlock = 512 << 10

var newline = []byte("\n")

var readBuffers = sync.Pool{New: func() any { b := make([]byte, 0, pathBlock+2*slack); return &b }}

// blockEntries parses the lines that start in [a, b) of [from, end) into entries
// that keep the bytes they were read from. prepare looks at them while they are in the
// cache.
func blockEntries(src source, from, a, b, end int64, prepare func([]entry.Entry)) ([]entry.Entry, error) {
	// Read into a buffer that stays in the cache and copy what is kept: that is
	// faster than to have new memory cleared and then read into.
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	read, start, err := blockLines(src, from, a, b, end, *buf)
	if cap(read) > cap(*buf) && cap(read) <= 4*pathBlock {
		*buf = read[:0]
	}
	if err != nil || len(read) == 0 {
		return nil, err
	}
	lines := append([]byte(nil), read...)
	entries := make([]entry.Entry, 0, len(lines)/600+4)
	at := start
	for whole := range bytes.Lines(lines) {
		line := bytes.TrimSuffix(whole, newline)
		if e, err := record.Parse(line); err == nil && len(e.ID) > 0 && !e.IsHeader() {
			// What nearly every line is, without a call through a function value.
			entries = append(entries, newEntry(line, at, e, 0))
		} else {
			eachRecord(line, func(raw []byte, in int, e record.Envelope) {
				if !e.IsHeader() && !e.IsSlot() {
					entries = append(entries, newEntry(raw, at+int64(in), e, 0))
				}
			}, nil)
		}
		at += int64(len(whole))
	}
	prepare(entries)
	return entries, nil
}

// eachBlockBackward hands the entries of [from, to) to each, block by block, the
// last block first, until it returns false. The first block is read alone, since
// most contexts end in it; from then on every core parses ahead.
func eachBlockBackward(ctx context.Context, src source, from, to int64, prepare func([]entry.Entry), each func([]entry.Entry) bool) error {
	type parsed struct {
		entries []entry.Entry
		err     error
	}
	b := to
	size := int64(firstBack)
	var ahead []chan parsed
	defer func() {
		for _, c := range ahead {
			<-c // nobody reads src any more when this returns
		}
	}()
	start := func() bool {
		if b <= from {
			return false
		}
		a := max(from, b-size)
		c := make(chan parsed, 1)
		go func(a, b int64) {
			var p parsed
			p.entries, p.err = blockEntries(src, from, a, b, to, prepare)
			c <- p
		}(a, b)
		ahead = append(ahead, c)
		b = a
		return true
	}
	workers := 1
	for {
		for len(ahead) < workers && start() {
		}
		if len(ahead) == 0 {
			return nil
		}
		p := <-ahead[0]
		ahead = ahead[1:]
		size, workers = pathBlock, runtime.GOMAXPROCS(0)
		for len(ahead) < workers && start() {
		}
		switch {
		case p.err != nil:
			return p.err
		case !each(p.entries):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
