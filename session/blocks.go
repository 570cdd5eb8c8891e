package session

import (
	"bytes"
	"context"
	"runtime"

	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/record"
)

// pathBlock is how much of a long path is parsed at a time. It is smaller than
// the cache of a core: every byte is looked at three times.
const pathBlock = 512 << 10

// blockEntries parses the lines that start in [a, b) of [from, end) into entries
// that keep the bytes they were read from.
func blockEntries(src source, from, a, b, end int64) ([]entry.Entry, error) {
	lines, start, err := blockLines(src, from, a, b, end, nil)
	if err != nil || len(lines) == 0 {
		return nil, err
	}
	entries := make([]entry.Entry, 0, len(lines)/600+4)
	for at := 0; at < len(lines); {
		line, next := lines[at:], len(lines)
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], at+i+1
		}
		if e, err := record.Parse(line); err == nil && len(e.ID) > 0 && !e.IsHeader() {
			// What nearly every line is, without a call through a function value.
			entries = append(entries, newEntry(line, start+int64(at), e, 0))
		} else {
			eachRecord(line, func(raw []byte, in int, e record.Envelope) {
				if !e.IsHeader() && !e.IsSlot() {
					entries = append(entries, newEntry(raw, start+int64(at+in), e, 0))
				}
			}, nil)
		}
		at = next
	}
	return entries, nil
}

// eachEntryBackward hands the entries of [from, to) to each, the last one first,
// until it returns false. The first block is read alone, since most contexts end
// in it; from then on every core parses ahead.
func eachEntryBackward(ctx context.Context, src source, from, to int64, each func(*entry.Entry) bool) error {
	type parsed struct {
		entries []entry.Entry
		err     error
	}
	walk := func(p parsed) (going bool, err error) {
		if p.err != nil {
			return false, p.err
		}
		for i := len(p.entries) - 1; i >= 0; i-- {
			if !each(&p.entries[i]) {
				return false, nil
			}
		}
		return true, ctx.Err()
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
			p.entries, p.err = blockEntries(src, from, a, b, to)
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
		if going, err := walk(p); !going || err != nil {
			return err
		}
	}
}
