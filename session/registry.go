package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
)

// The registry is the file registry beside the directory of blobs (in the home, unless
// its blobs are a symbolic link). It tells who uses the blobs without lying in the
// home, in lines of JSON:
//
//	{"session":"/elsewhere/s.jsonl","since":TIME,"size":BYTES}
//	    the first append to a session outside of the home; size is that of its file then
//	{"session":"/elsewhere/s.jsonl","blobs":["<64 hex>",...]}
//	    it cites these
//	{"session":"/elsewhere/s.jsonl","seen":TIME,"blobs":[...]}
//	    so does the collector say, which has read all of it
//	{"home":"/another/home","since":TIME}
//	    the blobs of that home are a symbolic link to these
//
// Lines of one session add up. Appends and rewrites hold registry.lock.
const registryName = "registry"

// maxRegistry bounds the memory for a registry: room for four million references.
const maxRegistry = 256 << 20

type registryLine struct {
	Session string   `json:"session,omitempty"`
	Home    string   `json:"home,omitempty"`
	Since   string   `json:"since,omitempty"`
	Size    int64    `json:"size,omitempty"`
	Seen    string   `json:"seen,omitempty"`
	Blobs   []string `json:"blobs,omitempty"`
}

// Registered is a session file outside of the home that uses its blobs, or another
// home that does.
type Registered struct {
	Path  string
	Home  bool
	Since time.Time
	// Blobs are those that the file is known to cite. Whole says that there are no
	// others, as far as the programs that use the registry know: the file was new when
	// it was registered, or was read by the collector since.
	Blobs []blobref.Ref
	Whole bool
	Seen  time.Time // by the collector, zero for never
}

func (m *Manager) registryPath() string {
	blobs := catalog.BlobsDir(m.home)
	if real, err := filepath.EvalSymlinks(blobs); err == nil {
		blobs = real
	}
	return filepath.Join(filepath.Dir(blobs), registryName)
}

// Registry lists who uses the blobs of the home from elsewhere, by path. A line that
// is none is an error: somebody may be missing.
func (m *Manager) Registry() ([]Registered, error) {
	path := m.registryPath()
	data, err := durable.ReadFile(m.opts.FS, path, maxRegistry)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Registered
	if err == nil {
		all, err = parseRegistry(data)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the registry %s: %w", path, err)
	}
	return all, nil
}

func parseRegistry(data []byte) ([]Registered, error) {
	data = data[:bytes.LastIndexByte(data, '\n')+1] // what follows was never finished
	known := map[string]*Registered{}
	for n := 1; len(data) > 0; n++ {
		text, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		var l registryLine
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("line %d is no JSON; remove it: %w", n, err)
		}
		path := cmp.Or(l.Session, l.Home)
		if !filepath.IsAbs(path) || l.Session != "" && l.Home != "" {
			return nil, fmt.Errorf("line %d names neither a session nor a home; remove it", n)
		}
		r := known[path]
		if r == nil {
			r = &Registered{Path: path, Home: l.Home != "", Whole: l.Since != "" && l.Size == 0}
			known[path] = r
		}
		if t, err := time.Parse(time.RFC3339, l.Since); err == nil && r.Since.IsZero() {
			r.Since = t
		}
		if t, err := time.Parse(time.RFC3339, l.Seen); err == nil {
			r.Seen, r.Whole = t, true
		}
		for _, hex := range l.Blobs {
			ref, err := blobref.ParseHex(hex)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w; remove it", n, err)
			}
			r.Blobs = append(r.Blobs, ref)
		}
	}
	all := make([]Registered, 0, len(known))
	for _, r := range known {
		all = append(all, *r)
	}
	slices.SortFunc(all, func(a, b Registered) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// appendRegistry adds lines. On an error the registry is as it was, or has the
// beginning of a line at its end, which counts for nothing.
func (m *Manager) appendRegistry(ctx context.Context, lines ...registryLine) error {
	path := m.registryPath()
	err := m.withRegistry(ctx, path, func() error {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		for _, l := range lines {
			if err := enc.Encode(l); err != nil {
				return err
			}
		}
		f, err := m.opts.FS.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return err
		}
		err = m.writeRegistry(f, buf.Bytes())
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil && m.opts.Durability == Sync {
			err = m.opts.FS.SyncDir(filepath.Dir(path))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("writing the registry %s: %w", path, err)
	}
	return nil
}

func (m *Manager) withRegistry(ctx context.Context, path string, do func() error) error {
	if err := durable.MkdirAll(m.opts.FS, filepath.Dir(path)); err != nil {
		return err
	}
	lock, err := durable.OpenLock(m.opts.FS, path+".lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := lock.Lock(ctx, LockWait); err != nil {
		return err
	}
	return do()
}

func (m *Manager) writeRegistry(f durable.File, lines []byte) error {
	id, err := f.Identify()
	if err != nil {
		return err
	}
	end := id.Size
	if end > 0 {
		// A writer that was killed may have left half a line.
		last := make([]byte, min(end, 1<<20))
		if _, err := f.ReadAt(last, end-int64(len(last))); err != nil {
			return err
		}
		if torn := len(last) - 1 - bytes.LastIndexByte(last, '\n'); torn > 0 {
			end -= int64(torn)
			if err := f.Truncate(end); err != nil {
				return err
			}
		}
	}
	if _, err = f.Write(lines); err == nil && m.opts.Durability == Sync {
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(end))
	}
	return nil
}

// UpdateRegistry replaces the registry by what change makes of it. Nobody else writes
// meanwhile.
func (m *Manager) UpdateRegistry(ctx context.Context, change func([]Registered) []Registered) error {
	path := m.registryPath()
	if _, err := m.opts.FS.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return m.withRegistry(ctx, path, func() error {
		all, err := m.Registry()
		if err != nil {
			return err
		}
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		for _, r := range change(all) {
			if err := enc.Encode(r.line()); err != nil {
				return err
			}
		}
		return durable.WriteFile(m.opts.FS, path, m.opts.Durability == Sync, buf.Bytes())
	})
}

func (r *Registered) line() registryLine {
	l := registryLine{Session: r.Path, Since: r.Since.UTC().Format(time.RFC3339)}
	if r.Home {
		l.Session, l.Home = "", r.Path
		return l
	}
	if !r.Whole {
		l.Size = 1 // there was something in it that nobody has read
	}
	if !r.Seen.IsZero() {
		l.Seen = r.Seen.UTC().Format(time.RFC3339)
	}
	for _, ref := range r.Blobs {
		l.Blobs = append(l.Blobs, ref.Hex())
	}
	return l
}

// registerHome tells the owner of the blobs that this home uses them too.
func (m *Manager) registerHome() error {
	blobs := catalog.BlobsDir(m.home)
	if info, err := m.opts.FS.Lstat(blobs); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return nil
	}
	home, err := filepath.EvalSymlinks(m.home)
	if err != nil {
		return err
	}
	all, err := m.Registry()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(r Registered) bool { return r.Home && r.Path == home }) {
		return nil
	}
	return m.appendRegistry(context.Background(), registryLine{Home: home, Since: m.opts.Now().UTC().Format(time.RFC3339)})
}

// listed is what a session knows of its place in the registry.
type listed struct {
	path    string // that this is about; "" before the first append
	outside bool   // of the home, so that the registry has to know it
	known   bool   // the registry does
	blobs   map[blobref.Ref]bool
}

// register makes a session that lies outside of the home known to it, before the
// first append. One that lies inside costs a comparison.
func (s *Session) register(ctx context.Context) error {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	l := &s.pins.listed
	path := s.Path()
	if l.path == path {
		return nil
	}
	*l = listed{path: path, outside: !s.manager.holds(path) && !s.manager.trashed(path)}
	if !l.outside {
		return nil
	}
	return s.list(ctx)
}

// Holds reports whether a log at path, which is absolute, lies among the sessions of the
// home. Sessions elsewhere are known to it by Elsewhere once something was appended.
func (m *Manager) Holds(path string) bool { return m.holds(resolved(path)) }

// holds reports whether path, which is resolved, lies among the sessions of the home.
func (m *Manager) holds(path string) bool {
	for _, home := range []string{m.home, resolved(m.home)} {
		if strings.HasPrefix(path, catalog.SessionsDir(home)+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// list does the work of register. s.pins.mu is held.
func (s *Session) list(ctx context.Context) error {
	l := &s.pins.listed
	if err := s.prepareHome(); err != nil {
		return err
	}
	all, err := s.manager.Registry()
	if err != nil {
		return err
	}
	l.blobs = map[blobref.Ref]bool{}
	if i := slices.IndexFunc(all, func(r Registered) bool { return r.Path == l.path }); i >= 0 {
		for _, ref := range all[i].Blobs {
			l.blobs[ref] = true
		}
		l.known = true
		return nil
	}
	line := registryLine{Session: l.path, Since: s.now().UTC().Format(time.RFC3339)}
	if st := s.known(); st.file != nil && !st.none {
		line.Size = max(st.size, 1)
	}
	if err := s.manager.appendRegistry(ctx, line); err != nil {
		return err
	}
	l.known = true
	return nil
}

// registerBlob notes that a session outside of the home is about to cite a blob, so
// that it is kept even when the session's file can not be read any more.
func (s *Session) registerBlob(ctx context.Context, ref blobref.Ref) error {
	// The blob may be stored before the session is looked at for the first time.
	if err := s.register(ctx); err != nil {
		return err
	}
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	l := &s.pins.listed
	if !l.outside {
		return nil
	}
	if !l.known {
		if err := s.list(ctx); err != nil {
			return err
		}
	}
	if l.blobs[ref] {
		return nil
	}
	if err := s.manager.appendRegistry(ctx, registryLine{Session: l.path, Blobs: []string{ref.Hex()}}); err != nil {
		return err
	}
	l.blobs[ref] = true
	return nil
}
