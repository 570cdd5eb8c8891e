package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/lineindex"
)

// Reader reads an artifact or an agent's output, also while it is written. Its
// methods are safe for concurrent use.
type Reader struct {
	dir  *Dir
	f    durable.File
	keep bool // the index of this file has a place in .index

	mu   sync.Mutex // guards all below
	info Info
	ix   lineindex.Index
	at   durable.Identity // of the file when ix was made; zero before
}

// Open opens artifact id. It returns the errors of Lookup.
func (d *Dir) Open(ctx context.Context, id int64) (*Reader, error) {
	info, err := d.Lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	f, err := d.fs.OpenFile(info.Path, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("opening artifact %d: %w", id, err)
	}
	return &Reader{dir: d, f: f, keep: true, info: info}, nil
}

// Info describes the artifact as it was when it was opened, and as Changed once
// Index found that its bytes are not those that were finished. It is zero for
// the output of an agent.
func (r *Reader) Info() Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// Size is the number of bytes there are now.
func (r *Reader) Size() (int64, error) {
	at, err := r.f.Identify()
	return at.Size, err
}

// ReadAt reads bytes as they were written.
func (r *Reader) ReadAt(p []byte, off int64) (int, error) { return r.f.ReadAt(p, off) }

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// minKept is the size from which a rebuilt index is worth a file, in bytes.
const minKept = 64 << 10

// Index returns the line index of the bytes there are now. The one that was kept
// when the artifact was finished is used while size and modification time of the
// file are those it was made for; else the file is read once and the index kept,
// if the directory can be written. For a file that grows, only new bytes are
// read.
func (r *Reader) Index(ctx context.Context) (lineindex.Index, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ix, err := r.index(ctx, true)
	if err != nil {
		return ix, fmt.Errorf("counting the lines of %s: %w", r.f.Name(), err)
	}
	return ix, nil
}

// index brings r.ix up to date. With trust it starts from an index that looks
// right; without, the file contradicted that one and is read anew.
func (r *Reader) index(ctx context.Context, trust bool) (lineindex.Index, error) {
	at, err := r.f.Identify()
	if err != nil {
		return lineindex.Index{}, err
	}
	from, known := lineindex.Index{}, r.at != durable.Identity{}
	switch {
	case !trust:
	case known && r.at == at:
		return r.ix, nil
	case known && at.Size > r.ix.Size:
		from = r.ix
	case !known && r.keep:
		if ix, ok := r.dir.keptIndex(r.info.ID, at); ok {
			r.set(ix, at)
			return ix, nil
		}
	}
	ix, err := lineindex.Extend(ctx, from, io.NewSectionReader(r.f, from.Size, at.Size-from.Size))
	if err != nil {
		return ix, err
	}
	// Kept only when nobody wrote meanwhile or is about to.
	if r.keep && !known && r.info.State != Writing && ix.Size >= minKept {
		if now, err := r.f.Identify(); err == nil && now == at {
			r.dir.keepIndex(r.info.ID, ix, at)
		}
	}
	r.set(ix, at)
	return ix, nil
}

func (r *Reader) set(ix lineindex.Index, at durable.Identity) {
	r.ix, r.at = ix, at
	if r.info.HasCRC && ix.Size == r.info.Bytes && ix.CRC32C != r.info.CRC32C {
		r.info.State = Changed
		r.info.Note = fmt.Sprintf("its checksum was %08x when it was finished and is %08x now", r.info.CRC32C, ix.CRC32C)
	}
}

// Section is a run of whole lines. Reading it gives their bytes as written,
// newlines included.
type Section struct {
	*io.SectionReader
	First, Last int64 // line numbers from 1; First > Last when there are none
}

// Lines returns the lines first to last, counted from 1, both included; a last
// beyond the end stands for the end. A first beyond the end is an error that
// matches lineindex.ErrRange.
func (r *Reader) Lines(ctx context.Context, first, last int64) (Section, error) {
	return r.section(ctx, func(ix lineindex.Index) (int64, int64) { return first, max(min(last, ix.Lines), first) })
}

// Tail returns the last n lines, or all when there are fewer.
func (r *Reader) Tail(ctx context.Context, n int64) (Section, error) {
	return r.section(ctx, func(ix lineindex.Index) (int64, int64) { return ix.Tail(n) })
}

func (r *Reader) section(ctx context.Context, choose func(lineindex.Index) (first, last int64)) (Section, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for trust := true; ; trust = false {
		ix, err := r.index(ctx, trust)
		if err != nil {
			return Section{}, fmt.Errorf("counting the lines of %s: %w", r.f.Name(), err)
		}
		first, last := choose(ix)
		if first > last && first == ix.Lines+1 {
			return Section{io.NewSectionReader(r.f, ix.Size, 0), first, last}, nil
		}
		off, end, err := ix.LineRange(r.f, first, last)
		if errors.Is(err, lineindex.ErrStale) && trust {
			continue // rewritten in place
		}
		if err != nil {
			return Section{}, err
		}
		return Section{io.NewSectionReader(r.f, off, end-off), first, last}, nil
	}
}

func (d *Dir) indexName(id int64) string { return d.index(strconv.FormatInt(id, 10) + ".idx") }

// keptIndex returns the index that was kept for a file that looks like at.
func (d *Dir) keptIndex(id int64, at durable.Identity) (lineindex.Index, bool) {
	data, err := durable.ReadFile(d.fs, d.indexName(id), lineindex.MaxEncodedLen)
	if err != nil {
		return lineindex.Index{}, false
	}
	ix, stamp, err := lineindex.Unmarshal(data)
	ok := err == nil && stamp == lineindex.Stamp{Size: at.Size, ModTime: at.ModTime} && ix.Size == at.Size
	return ix, ok
}

// keepIndex keeps an index for the next reader. That it can't is no error: a
// reader that finds none counts for itself.
func (d *Dir) keepIndex(id int64, ix lineindex.Index, at durable.Identity) {
	// The file is there, so its directory is, unless it was moved just now.
	if err := d.fs.Mkdir(filepath.Join(d.Path(), indexDir), durable.DirPerm); err == nil || errors.Is(err, fs.ErrExist) {
		stamp := lineindex.Stamp{Size: at.Size, ModTime: at.ModTime}
		_ = durable.WriteFile(d.fs, d.indexName(id), false, ix.Marshal(stamp))
	}
}
