package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// MaxHeadBytes is how much of the beginning of a log Manager.Import wants to see: the
// header of every session is in it.
const MaxHeadBytes = maxHeaderBytes

// importWait is how long an import waits for another one. They take turns, so that
// two of one bundle do not both find its id free.
const importWait = time.Hour

// Names of an import under way. Both begin with a dot, so no listing looks at them.
const (
	importLock   = ".import.lock"
	importPrefix = ".tmp-import-"
	// importMark stands in an artifact directory until its log is there too.
	importMark = ".tmp-import"
)

// PathMap says that what lies at or below Old on the machine that a session comes
// from lies at or below New here.
type PathMap struct{ Old, New string }

// ImportOptions say how a session comes in.
type ImportOptions struct {
	// Map rewrites the paths of the headers, those of subagents too: the working
	// directory, directories besides it, where the file was before and which one it was
	// forked from; and those in records of files (entries agentrun.checkpoint), which
	// tell where the files are. The longest Old that fits counts. All other paths within
	// entries are what was said and done, and stay. See MapCheck.
	Map []PathMap
}

// Import is a session on its way into a home, of which nothing can be seen before
// Publish. Its methods belong to one goroutine, but for SmallArtifact. Close it.
type Import struct {
	m        *Manager
	header   record.Header
	preamble []byte // in place of the first skip bytes of the log; nil to leave them
	skip     int64
	dir      string // that the session will be in
	was      string // id in the log that came
	maps     *pathMaps

	lock *durable.Lock // held from the beginning to Close
	buf  []byte

	mu      sync.Mutex // guards all below
	staging string     // "" before the first write
	made    []string   // it and directories in it, parents first
	isMade  map[string]bool
	staged  map[string]bool // files in it
}

// Imported is what became of an import.
type Imported struct {
	ID   string // of the session here
	Path string
	CWD  string
	Was  string // its id where it came from
}

// CheckHead reports whether a log that begins with head, at most MaxHeadBytes of it, is
// one that BeginImport takes.
func CheckHead(head []byte) error {
	_, err := importHead(head)
	return err
}

func importHead(head []byte) (preamble, error) {
	p, err := readPreamble(source{bytes.NewReader(head), int64(len(head))})
	if err == nil && p.none {
		err = fmt.Errorf("%w: it is empty", ErrNotSession)
	}
	return p, err
}

// BeginImport looks at the beginning of a log, at most MaxHeadBytes of it, and
// decides what its session will be called here and where it will be: under its own
// id, or under a new one when a session of the home has that, with the old one as its
// parent. Nothing is written but the lock that imports take turns with.
func (m *Manager) BeginImport(ctx context.Context, head []byte, o ImportOptions) (*Import, error) {
	p, err := importHead(head)
	if err != nil {
		return nil, fmt.Errorf("importing a session: %w", err)
	}
	im := &Import{m: m, header: p.header, was: p.header.ID, staged: map[string]bool{}, isMade: map[string]bool{}}
	before := string(p.header.AppendLine(nil))
	if im.maps, err = newPathMaps(o.Map); err != nil {
		return nil, fmt.Errorf("importing session %.100s: %w", im.was, err)
	}
	im.maps.header(&im.header)
	cwd := im.header.CWD
	if !filepath.IsAbs(cwd) {
		cwd = "." // the file does not say; it is where it was imported
	}
	if im.dir, _, err = m.placeFor(cwd); err != nil {
		return nil, fmt.Errorf("importing session %.100s: %w", im.was, err)
	}
	if err := m.makeDir(catalog.SessionsDir(m.home)); err != nil {
		return nil, fmt.Errorf("importing a session: %w", err)
	}
	if im.lock, err = durable.OpenLock(m.opts.FS, filepath.Join(catalog.SessionsDir(m.home), importLock)); err != nil {
		return nil, fmt.Errorf("importing a session: %w", err)
	}
	if err = im.lock.Lock(ctx, importWait); err != nil {
		err = fmt.Errorf("importing a session: waiting for another import: %w", err)
	} else if err = im.sweep(); err == nil {
		err = im.settle(ctx, head, &p, before)
	}
	if err != nil {
		im.lock.Close()
		return nil, err
	}
	return im, nil
}

// sweep removes what imports that died have left. The lock is held, so none is under
// way.
func (im *Import) sweep() error {
	dir := catalog.SessionsDir(im.m.home)
	entries, err := im.m.opts.FS.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("importing a session: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), importPrefix) {
			// What cannot be removed is in nobody's way.
			_ = durable.RemoveAll(im.m.opts.FS, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// settle decides id and header, whose line was before. head is the beginning of the log.
func (im *Import) settle(ctx context.Context, head []byte, p *preamble, before string) error {
	h := &im.header
	taken, err := im.taken(ctx)
	if err != nil {
		return fmt.Errorf("importing session %.100s: %w", im.was, err)
	}
	if taken {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("making a session id: %w", err)
		}
		h.ParentSession, h.ID = im.was, id.String()
		h.Timestamp = string(record.AppendTime(nil, im.m.opts.Now()))
	}
	if string(h.AppendLine(nil)) == before {
		return nil // the log stays as it is, to the byte
	}
	if p.hasSlot {
		// The slot holds the title; folded into the header it is kept.
		h.Title, h.TitleSource = p.slot.Title, p.slot.Source
	}
	given, _, err := findTitle(ctx, source{bytes.NewReader(head), int64(len(head))}, p.end, int64(len(head)))
	if err != nil {
		return fmt.Errorf("importing session %.100s: %w", im.was, err)
	}
	h.KeepTitle = !given.OK // what follows behind head is not known yet
	im.preamble, im.skip = h.AppendLine(nil), p.end
	return nil
}

// taken reports whether the id cannot be used: a session of the home has it, or
// something stands where the session would be.
func (im *Import) taken(ctx context.Context) (bool, error) {
	if catalog.CheckID(im.header.ID) != nil {
		return true, nil // it cannot name a file
	}
	all, err := im.m.List(ctx, "")
	if err != nil {
		return false, err
	}
	for _, s := range all.Sessions {
		if strings.EqualFold(s.ID, im.header.ID) {
			return true, nil
		}
	}
	path, err := im.path()
	if err != nil {
		return false, err
	}
	for _, name := range []string{path, catalog.ColdPath(path)} {
		if there, err := im.there(name); there || err != nil {
			return true, err
		}
	}
	stem, _ := catalog.Stem(path)
	if half, err := im.there(filepath.Join(stem, importMark)); half || err != nil {
		// Of an import that died before the log was there.
		return false, errors.Join(err, im.clear(path))
	}
	for _, name := range []string{stem, catalog.DamagedPath(path)} {
		if there, err := im.there(name); there || err != nil {
			return true, err
		}
	}
	return false, nil
}

func (im *Import) there(name string) (bool, error) {
	_, err := im.m.opts.FS.Identify(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// clear takes away what an import that died left of the session at path. The mark
// goes last, together with what it is in.
func (im *Import) clear(path string) error {
	fsys, stem := im.m.opts.FS, strings.TrimSuffix(path, catalog.PlainExt)
	if err := fsys.Remove(catalog.DamagedPath(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	away := im.tempDir()
	if err := fsys.RenameNoReplace(stem, away); err != nil {
		return err
	}
	return durable.RemoveAll(fsys, away)
}

// tempDir is a new name for a directory of an import.
func (im *Import) tempDir() string {
	return filepath.Join(catalog.SessionsDir(im.m.home), importPrefix+strconv.FormatUint(rand.Uint64(), 36))
}

// path is where the log will be.
func (im *Import) path() (string, error) {
	created, ok := record.ParseTime([]byte(im.header.Timestamp))
	if y := created.UTC().Year(); !ok || y < 0 || y > 9999 {
		created = im.m.opts.Now()
		im.header.Timestamp = string(record.AppendTime(nil, created))
	}
	name, err := catalog.FileName(created, im.header.ID)
	if err != nil {
		return "", err
	}
	return filepath.Join(im.dir, name), nil
}

// ArtifactsDir is where the artifacts of the session will be.
func (im *Import) ArtifactsDir() (string, error) {
	path, err := im.path()
	return strings.TrimSuffix(path, catalog.PlainExt), err
}

// Publish puts the session in its place: its artifacts, then its log. After an error
// nothing of it is there.
func (im *Import) Publish(ctx context.Context) (_ Imported, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("importing session %.100s: %w", im.was, err)
		}
	}()
	path, err := im.path()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && !im.staged[stagedLog] {
		err = errors.New("it has no log")
	}
	if err == nil {
		err = im.m.makeDir(im.dir)
	}
	if err == nil && im.m.opts.Durability == Sync {
		err = im.sync()
	}
	if err != nil {
		return Imported{}, err
	}
	if err := im.place(path); err != nil {
		return Imported{}, err
	}
	return Imported{ID: im.header.ID, Path: path, CWD: im.header.CWD, Was: im.was}, nil
}

// place renames what is staged, and back when a step fails.
func (im *Import) place(path string) error {
	fsys, stem := im.m.opts.FS, strings.TrimSuffix(path, catalog.PlainExt)
	type move struct{ from, to string }
	var moves []move
	if im.staged[filepath.Join(stagedArtifacts, importMark)] {
		moves = append(moves, move{stagedArtifacts, stem})
	}
	if im.staged[stagedDamaged] {
		moves = append(moves, move{stagedDamaged, catalog.DamagedPath(path)})
	}
	moves = append(moves, move{stagedLog, path})
	for i := range moves {
		moves[i].from = filepath.Join(im.staging, moves[i].from)
	}
	var err error
	done := 0
	for ; done < len(moves) && err == nil; done++ {
		if err = fsys.RenameNoReplace(moves[done].from, moves[done].to); err != nil {
			break
		}
	}
	if err == nil && im.m.opts.Durability == Sync {
		for dir, i := im.dir, 0; i < 3 && err == nil; dir, i = filepath.Dir(dir), i+1 {
			err = fsys.SyncDir(dir)
		}
	}
	if err != nil {
		for _, m := range slices.Backward(moves[:done]) {
			err = errors.Join(err, fsys.RenameNoReplace(m.to, m.from))
		}
		return err
	}
	if len(moves) > 1 {
		// The session is whole. A mark that stays tells nothing any more, and is
		// collected as any temporary.
		_ = fsys.Remove(filepath.Join(stem, importMark))
	}
	return nil
}

// Close removes what was not published, and lets the next import go on.
func (im *Import) Close() error {
	var err error
	if len(im.made) > 0 {
		err = durable.RemoveAll(im.m.opts.FS, im.staging)
		im.made = nil
	}
	return errors.Join(err, im.lock.Close())
}
