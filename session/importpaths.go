package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// pathMaps are the maps of an import and what came of them. It is safe for concurrent
// use.
type pathMaps struct {
	list []PathMap

	mu   sync.Mutex // guards used
	used []bool
}

func newPathMaps(list []PathMap) (*pathMaps, error) {
	p := &pathMaps{list: slices.Clone(list), used: make([]bool, len(list))}
	for i := range p.list {
		m := &p.list[i]
		if m.Old = filepath.Clean(m.Old); !filepath.IsAbs(m.Old) || !filepath.IsAbs(m.New) {
			return nil, fmt.Errorf("mapping %s to %s: both must be absolute paths", m.Old, m.New)
		}
	}
	return p, nil
}

// one is where a path of the other machine is here: by the longest map that fits.
func (p *pathMaps) one(path string) string {
	best := -1
	for i, m := range p.list {
		if below(m.Old, path) && (best < 0 || len(m.Old) > len(p.list[best].Old)) {
			best = i
		}
	}
	if best < 0 {
		return path
	}
	p.mu.Lock()
	p.used[best] = true
	p.mu.Unlock()
	return filepath.Join(p.list[best].New, strings.TrimPrefix(path, strings.TrimSuffix(p.list[best].Old, "/")))
}

// below reports whether path is dir or in it.
func below(dir, path string) bool {
	rest, ok := strings.CutPrefix(path, dir)
	return ok && (rest == "" || rest[0] == '/' || dir == "/")
}

// MapCheck finds maps that fit nothing of a session, which are likely mistakes, before
// anything of it is imported.
type MapCheck struct {
	maps *pathMaps
	cwd  string // in the first log
}

// zstdMagic is what a zstd frame begins with.
const zstdMagic = "\x28\xb5\x2f\xfd"

// NewMapCheck begins a check. The error is that of a map that can never be one.
func NewMapCheck(maps []PathMap) (*MapCheck, error) {
	p, err := newPathMaps(maps)
	return &MapCheck{maps: p}, err
}

// Log looks at a log of the session: the session's own first, then those of subagents.
// It may be the beginning of one, or a compressed one. Anything else is no error.
func (c *MapCheck) Log(r io.Reader) error {
	br := bufio.NewReader(r)
	if magic, _ := br.Peek(len(zstdMagic)); string(magic) == zstdMagic {
		err := readCold(br, func(r io.Reader) error {
			_, err := c.maps.copyLog(io.Discard, r)
			return err
		})
		if err != nil {
			_, err = io.Copy(io.Discard, r) // what is wrong with it is for the doctor
		}
		return err
	}
	cwd, err := c.maps.copyLog(io.Discard, br)
	if c.cwd == "" {
		c.cwd = cwd
	}
	return err
}

// Err is the error of a map that fits nothing of the logs.
func (c *MapCheck) Err() error {
	for i, m := range c.maps.list {
		if !c.maps.used[i] {
			return fmt.Errorf("nothing of it lies in %s, which is to be %s: its working directory was %s", m.Old, m.New, c.cwd)
		}
	}
	return nil
}

// any reports whether any of the maps fitted something.
func (p *pathMaps) any() bool { return slices.Contains(p.used, true) }

// header maps the paths of a header.
func (p *pathMaps) header(h *record.Header) {
	h.CWD = p.one(h.CWD)
	for _, list := range [][]string{h.AdditionalDirectories, h.PreviousSessionFiles} {
		for i := range list {
			list[i] = p.one(list[i])
		}
	}
	if filepath.IsAbs(h.ParentSession) {
		h.ParentSession = p.one(h.ParentSession)
	}
}

// recordWord is in the line of every record of files: pi and oh-my-pi write it as we do.
var recordWord = []byte(entry.CustomTypeCheckpoint)

// maxRecordLine is the longest line, in bytes, in which paths are mapped: more than
// four times as long as a record of as many files as one has, all paths as long as they
// may be.
const maxRecordLine = 64 << 20

// NestedLog reports whether a file of the artifact directory may be the log of a
// subagent, compressed or not.
func NestedLog(name string) bool {
	return strings.HasSuffix(name, catalog.PlainExt) || coldLog(name)
}

func coldLog(name string) bool { return catalog.IsCold(name) }

// copyLog copies a log with its paths mapped, and returns the working directory that it
// came with. What is no log is copied as it is.
func (p *pathMaps) copyLog(w io.Writer, r io.Reader) (cwd string, err error) {
	br := bufio.NewReaderSize(r, MaxHeadBytes)
	head, err := br.Peek(MaxHeadBytes)
	if err != nil && err != io.EOF {
		return "", err
	}
	pre, err := importHead(head)
	if err != nil {
		_, err = io.Copy(w, br)
		return "", err
	}
	cwd = pre.header.CWD
	line, before := pre.line, pre.header.AppendLine(nil)
	p.header(&pre.header)
	// A crc made anew would hide that a header is damaged.
	if pre.header.CRC != record.CRCMismatch && !bytes.Equal(before, pre.header.AppendLine(nil)) {
		if line, err = pre.header.Rewrite(pre.line); err != nil {
			return cwd, err
		}
	}
	if _, err := w.Write(head[:pre.at]); err != nil {
		return cwd, err
	}
	if _, err := w.Write(line); err != nil {
		return cwd, err
	}
	if _, err := br.Discard(int(pre.at) + len(pre.line)); err != nil {
		return cwd, err
	}
	return cwd, p.copyEntries(w, br)
}

// copyEntries copies the lines of a log, with the paths mapped in the records of files:
// those tell where files are. All other lines stay to the byte.
func (p *pathMaps) copyEntries(w io.Writer, r *bufio.Reader) error {
	out := bufio.NewWriterSize(w, blockSize)
	var long []byte // a line that is longer than the buffer of r
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		more := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case long != nil || more && bytes.Contains(line, recordWord):
			// It is put together, unless it is too long for a record.
			long = append(long, line...)
			line = long
			if more && len(long) <= maxRecordLine {
				continue
			}
			if more {
				if _, err := out.Write(long); err != nil {
					return err
				}
				long = nil
				if err := copyLine(out, r); err != nil {
					return err
				}
				continue
			}
			long = nil
		case more:
			if _, err := out.Write(line); err != nil {
				return err
			}
			if err := copyLine(out, r); err != nil {
				return err
			}
			continue
		}
		if _, werr := out.Write(p.entry(line)); werr != nil {
			return werr
		}
		if err == io.EOF {
			return out.Flush()
		}
	}
}

// copyLine copies what is left of a line.
func copyLine(w io.Writer, r *bufio.Reader) error {
	for {
		part, err := r.ReadSlice('\n')
		if _, werr := w.Write(part); werr != nil {
			return werr
		}
		switch {
		case err == nil || err == io.EOF:
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return err
		}
	}
}

// entry is a line of a log with the paths of a record of files mapped, and the crc made
// anew if there is one. A line that is damaged, or holds anything else, stays as it is.
func (p *pathMaps) entry(line []byte) []byte {
	if !bytes.Contains(line, recordWord) {
		return line
	}
	body, end := line, []byte(nil)
	if n := len(line) - 1; n >= 0 && line[n] == '\n' {
		body, end = line[:n], line[n:]
	}
	whole := record.Trim(body)
	if record.Verify(whole) == record.CRCMismatch || !ecmajson.Valid(whole) ||
		gjson.GetBytes(whole, "type").Str != entry.TypeCustom || gjson.GetBytes(whole, "customType").Str != entry.CustomTypeCheckpoint {
		return line
	}
	data := []byte(gjson.GetBytes(whole, "data").Raw)
	mapped, changed, err := p.record(data)
	if err != nil || !changed {
		return line
	}
	out, err := record.Edit(whole, map[string][]byte{"data": mapped})
	if err != nil {
		return line
	}
	return append(out, end...)
}

// placeLists are the members of a record of files that hold places.
var placeLists = []string{"dirs", "skipped", "made", "files"}

// record maps the data of a record of files. changed tells whether anything was.
func (p *pathMaps) record(data []byte) (out []byte, changed bool, err error) {
	lists := map[string][]byte{}
	for _, name := range placeLists {
		list := gjson.GetBytes(data, name)
		if !list.IsArray() {
			continue
		}
		made, differs := []byte{'['}, false
		list.ForEach(func(_, place gjson.Result) bool {
			if len(made) > 1 {
				made = append(made, ',')
			}
			path := place.Get("path")
			to := path.Str
			if path.Type == gjson.String && filepath.IsAbs(to) {
				to = p.one(to)
			}
			raw := []byte(place.Raw)
			if to != path.Str {
				differs = true
				raw, err = record.Edit(raw, map[string][]byte{"path": ecmajson.AppendString(nil, to)})
			}
			made = append(made, raw...)
			return err == nil
		})
		if err != nil {
			return nil, false, err
		}
		if differs {
			lists[name], changed = append(made, ']'), true
		}
	}
	if !changed {
		return data, false, nil
	}
	out, err = record.Edit(data, lists)
	return out, true, err
}
