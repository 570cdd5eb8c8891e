package session

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// LostType is the custom entry that Manager.Repair puts in the place of one that
// others name as their parent and that is not in the file: they hang together again,
// and no line of theirs is touched.
const LostType = "agentrun.lost"

// maxMends is how often a repair starts over because a program that takes no lock
// wrote to the log meanwhile.
const maxMends = 3

// Repair takes the damage out of the log at path and returns what it found and
// mended; without damage it changes nothing. A second Repair finds nothing.
//
// A new file is written beside the log, fsynced, read back and compared, and then
// takes the log's place in one step, under the lock for appends. Bytes that do not go
// into it, and lines that go into it changed, are appended to <session>.damaged
// before. So a crash leaves the old log or the new one. What becomes of the damage:
//
//   - header: made anew, see Stretch.From.
//   - torn, nul, garbage, scalar, frame: the bytes leave the log.
//   - joined: each record gets a line of its own.
//   - checksum, and every other damage that comes from one flipped bit of a sealed
//     line: the bit is turned back. Other lines with a wrong crc stay, with a new
//     crc: what they say cannot be vouched for, and losing it would be worse.
//   - duplicate: the later entry gets a new id, and so do those that mean it.
//   - orphan: an entry of type custom, LostType, takes the place of the lost parent,
//     under the entry before the damage; where the parent is in the file, but behind,
//     it is moved before its child.
//   - cycle: the entry goes under the one before it in the file.
//
// A compressed log that is damaged becomes a plain one. A log of version 1 or 2
// becomes one of version 3, as by an append. One of a newer version is refused with
// ErrReadOnly, a transcript of Claude Code or Codex with ErrForeign.
func (m *Manager) Repair(ctx context.Context, path string) (*Checkup, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("repairing %s: %w", path, err)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	plain := catalog.PlainPath(path)
	m.settle(ctx, movesOf(plain))
	lock, err := durable.OpenLock(m.opts.FS, catalog.LockPath(plain))
	if err != nil {
		return nil, fmt.Errorf("repairing %s: %w", plain, err)
	}
	defer lock.Close()
	if err := m.lockBehindMove(ctx, lock, plain); err != nil {
		return nil, fmt.Errorf("repairing %s: %w", plain, err)
	}
	if m.moving(plain) {
		return nil, fmt.Errorf("repairing %s: it is being moved; try again when that has ended", plain)
	}
	for try := 1; ; try++ {
		c, err := m.mend(ctx, plain)
		if errors.Is(err, errReplaced) && try < maxMends {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("repairing %s: %w", plain, err)
		}
		return c, nil
	}
}

// mend is one attempt of Repair. The lock is held.
func (m *Manager) mend(ctx context.Context, path string) (*Checkup, error) {
	x, err := m.examine(ctx, path)
	if err != nil {
		return nil, err
	}
	defer x.st.close()
	if x.strange {
		return nil, fmt.Errorf("%w: %w", ErrNotSession, errStrange)
	}
	c := x.checkup(m)
	if len(c.Damage) == 0 {
		return c, nil
	}
	if !c.Writable {
		return nil, fmt.Errorf("it has version %s of the format, and this program writes up to %d: %w",
			versionText(x.st.header), record.Version, ErrReadOnly)
	}
	w, err := m.newMender(x, path)
	if err != nil {
		return nil, err
	}
	if err := w.beside(ctx); err != nil {
		return nil, errors.Join(err, w.discard())
	}
	err = w.verify(ctx)
	if err == nil {
		err = w.keep()
	}
	if err != nil {
		return nil, errors.Join(err, w.discard())
	}
	if err := w.swap(); err != nil {
		return nil, err
	}
	if w.asideSize > 0 {
		c.Kept = catalog.DamagedPath(path)
	}
	return c, nil
}

// mender writes the log without its damage.
type mender struct {
	m    *Manager
	x    *examined
	path string // of the plain log
	plan *plan

	temp  string
	out   *bufio.Writer
	sum   uint32 // CRC-32C of what was written
	size  int64
	ids   []string // of the entries written, in order
	lines []byte   // of a few entries, reused

	aside     *bytes.Buffer // damaged bytes, until keep writes them
	asideSize int64
}

func (m *Manager) newMender(x *examined, path string) (*mender, error) {
	p, err := newPlan(x)
	if err != nil {
		return nil, err
	}
	return &mender{m: m, x: x, path: path, plan: p, aside: &bytes.Buffer{}}, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write counts and sums what goes into the new file.
func (w *mender) Write(b []byte) (int, error) {
	w.sum = crc32.Update(w.sum, castagnoli, b)
	w.size += int64(len(b))
	return w.out.Write(b)
}

// beside writes the new file.
func (w *mender) beside(ctx context.Context) error {
	fsys := w.m.opts.FS
	f, err := durable.CreateTemp(fsys, filepath.Dir(w.path), filepath.Base(w.path))
	if err != nil {
		return err
	}
	w.temp = f.Name()
	if was, err := fsys.Identify(w.path); err == nil {
		keepMode(f, was)
	}
	w.out = bufio.NewWriterSize(f, 1<<20)
	err = errors.Join(w.flipped(), w.preamble(ctx))
	if err == nil {
		err = w.body(ctx)
	}
	if err == nil {
		err = w.out.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// discard removes the new file.
func (w *mender) discard() error {
	if w.temp == "" {
		return nil
	}
	if err := w.m.opts.FS.Remove(w.temp); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// set puts damaged bytes aside.
func (w *mender) set(b []byte) {
	w.aside.Write(b)
	w.aside.WriteByte('\n')
}

// flipped puts aside the stretches whose flipped bits are turned back, and frames that
// cannot be decompressed.
func (w *mender) flipped() error {
	frames, err := w.x.damagedFrames()
	if err != nil {
		return err
	}
	for _, b := range frames {
		w.set(b)
	}
	for _, f := range w.x.flips {
		b, err := readSpan(w.x.raw, f.told.Offset, f.told.Offset+f.told.Bytes, nil)
		if err != nil {
			return err
		}
		w.set(b)
	}
	return nil
}

// preamble writes slot and header.
func (w *mender) preamble(ctx context.Context) error {
	st := w.x.st
	if w.x.lost != nil {
		if w.x.st.image != nil {
			_, err := w.Write(append(bytes.Clone(st.line), '\n'))
			return err
		}
		h := st.header
		h.KeepTitle = true
		_, err := w.Write(h.AppendLine(nil))
		return err
	}
	if st.image == nil {
		err := eachForward(ctx, st.src, 0, st.at, func(line []byte, _ int64) bool {
			if _, ok := record.ParseSlot(record.Trim(line)); ok {
				_, _ = w.Write(append(bytes.Clone(line), '\n'))
			} else if bytes.IndexByte(line, 0) >= 0 {
				w.set(line)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	line := st.line
	if st.header.CRC == record.CRCMismatch && st.image == nil {
		w.set(line)
		line = record.Reseal(line)
	}
	_, err := w.Write(append(bytes.Clone(line), '\n'))
	return err
}

// body writes the entries, and puts aside what is none.
func (w *mender) body(ctx context.Context) error {
	st, t := w.x.st, w.x.tree
	next := 0
	var werr error
	err := eachForward(ctx, st.src, st.end, st.src.size, func(line []byte, at int64) bool {
		eachRecord(line, func(raw []byte, in int, e record.Envelope) {
			switch {
			case werr != nil:
			case e.IsHeader() && w.x.lost != nil && w.plan.headerOnce(raw, st.header.ID):
				// It goes to the beginning of the file.
			case e.IsHeader() || e.IsSlot() || next >= len(t.nodes.list) || t.nodes.list[next].off != at+int64(in):
				werr = w.copy(raw) // a line that pi wrote once more is no damage
			default:
				werr = w.entry(next, raw, e.CRC)
				next++
			}
		}, func(off, size int, kind Kind) {
			if kind != KindJoined { // all of its records are written
				w.set(line[off : off+size])
			}
		})
		return werr == nil
	})
	if err = errors.Join(err, werr); err != nil {
		return err
	}
	if next != len(t.nodes.list) {
		return fmt.Errorf("%d of %d entries were found again: %w", next, len(t.nodes.list), errReplaced)
	}
	if w.plan.leaf != "" {
		return w.custom(record.NewID(), w.plan.leaf, `,"customType":"agentrun.leaf","data":{"reason":"entries before were put into their order"}`, len(t.nodes.list)-1)
	}
	return nil
}

func (w *mender) copy(raw []byte) error {
	_, err := w.Write(append(append(w.lines[:0], raw...), '\n'))
	return err
}

// entry writes entry i, and before it what the plan puts there.
func (w *mender) entry(i int, raw []byte, crc record.CRC) error {
	if w.plan.moved[int32(i)] {
		return nil // it was written before its child
	}
	for _, j := range w.plan.before[int32(i)] {
		x := w.x.tree.nodes.list[j]
		moved, err := readSpan(w.x.st.src, x.off, x.off+int64(x.size), nil)
		if err != nil {
			return err
		}
		e, err := record.Parse(moved)
		if err == nil {
			err = w.line(int(j), moved, e.CRC)
		}
		if err != nil {
			return err
		}
	}
	return w.line(i, raw, crc)
}

// line writes entry i with what stands in for its lost parent.
func (w *mender) line(i int, raw []byte, crc record.CRC) error {
	for _, l := range w.plan.lost[int32(i)] {
		data := `,"customType":"` + LostType + `","data":{"reason":"this entry was named as a parent and was not in the file"}`
		if err := w.custom(l.id, l.parent, data, i); err != nil {
			return err
		}
	}
	id := string(w.x.tree.nodes.id(int32(i)))
	line := raw
	if crc == record.CRCMismatch {
		line = record.Reseal(line)
	}
	if edits := w.plan.edits[int32(i)]; edits != nil {
		var err error
		if line, err = record.Edit(line, edits); err != nil {
			return err
		}
		if w.plan.renamed[int32(i)] != "" {
			id = w.plan.renamed[int32(i)]
		}
	}
	if crc == record.CRCMismatch || w.plan.edits[int32(i)] != nil {
		w.set(raw)
	}
	w.ids = append(w.ids, id)
	return w.copy(line)
}

// custom writes an entry of ours, with the time of entry i.
func (w *mender) custom(id, parent, fields string, i int) error {
	at := w.m.opts.Now()
	if e, err := w.x.tree.entry(i); err == nil && !e.Time().IsZero() {
		at = e.Time()
	}
	b := append(record.Begin(nil, string(entry.TypeCustom), id, parent, at), fields...)
	w.ids = append(w.ids, id)
	_, err := w.Write(record.Seal(b, 0))
	return err
}

// verify loads the new file: it is what was written, has no damage, holds every
// entry of the old one in order, and its context has all that the old one had.
func (w *mender) verify(ctx context.Context) error {
	y, err := w.m.examine(ctx, w.temp)
	if err != nil {
		return fmt.Errorf("reading the new file back: %w; the log stays as it is", err)
	}
	defer y.st.close()
	switch {
	case len(y.damage) > 0:
		return fmt.Errorf("the new file has damage as well (%s in line %d); the log stays as it is", y.damage[0].Kind, y.damage[0].Line)
	case y.tree.Len() != len(w.ids):
		return fmt.Errorf("the new file has %d entries of %d; the log stays as it is", y.tree.Len(), len(w.ids))
	}
	for i, id := range w.ids {
		if string(y.tree.nodes.id(int32(i))) != id {
			return fmt.Errorf("entry %d of the new file is %s instead of %s; the log stays as it is", i, y.tree.nodes.id(int32(i)), id)
		}
	}
	sum, buf := uint32(0), []byte(nil)
	for at := int64(0); at < y.raw.size; at += blockSize {
		if buf, err = readSpan(y.raw, at, min(at+blockSize, y.raw.size), buf); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, buf)
	}
	if sum != w.sum || y.raw.size != w.size {
		return errors.New("the new file does not hold what was written; the log stays as it is")
	}
	return w.sameContext(ctx, y)
}

// sameContext compares what a model would be sent before and after. Entries may come
// back into it, none may leave it.
func (w *mender) sameContext(ctx context.Context, y *examined) error {
	before, err := contextIDs(ctx, w.x, w.path)
	if err != nil {
		return err
	}
	after, err := contextIDs(ctx, y, w.temp)
	if err != nil {
		return err
	}
	for _, id := range before {
		for _, n := range w.x.tree.repeats {
			if new := w.plan.renamed[n]; new != "" && string(w.x.tree.nodes.id(n)) == id && !slices.Contains(after, id) {
				id = new
			}
		}
		i := slices.Index(after, id)
		if i < 0 {
			return fmt.Errorf("entry %s would leave the context; the log stays as it is", id)
		}
		after = after[i+1:]
	}
	return nil
}

// contextIDs are the entries of the context at the leaf.
func contextIDs(ctx context.Context, x *examined, path string) (ids []string, err error) {
	st := *x.st
	p, err := readPath(ctx, st, st.leaf, nil)
	if err != nil {
		return nil, err
	}
	for i := range p.entries {
		ids = append(ids, p.entries[i].ID())
	}
	return ids, nil
}

// keep appends what was put aside to <session>.damaged.
func (w *mender) keep() error {
	w.asideSize = int64(w.aside.Len())
	if w.asideSize == 0 {
		return nil
	}
	return appendDamaged(w.m.opts.FS, w.path, w.aside.Bytes())
}

// swap puts the new file in the place of the log, unless that changed meanwhile.
func (w *mender) swap() error {
	fsys, st := w.m.opts.FS, w.x.st
	now, err := fsys.Identify(st.file.Name())
	if err == nil && now != st.id {
		err = fmt.Errorf("it changed meanwhile; stop the programs that write to it and try again: %w", errReplaced)
	}
	if err != nil {
		return errors.Join(err, w.discard())
	}
	if st.cold {
		err = fsys.RenameNoReplace(w.temp, w.path)
	} else {
		err = fsys.Rename(w.temp, w.path)
	}
	if err != nil {
		return errors.Join(err, w.discard())
	}
	if err := fsys.SyncDir(filepath.Dir(w.path)); err != nil {
		return fmt.Errorf("the repaired log is in place, and a power cut may bring back the old one: %w", err)
	}
	if st.cold {
		if err := fsys.Remove(st.file.Name()); err != nil {
			return fmt.Errorf("the repaired log is in place; removing its compressed form: %w", err)
		}
		return fsys.SyncDir(filepath.Dir(w.path))
	}
	return nil
}

// appendDamaged appends bytes to <session>.damaged, durably, or changes nothing.
func appendDamaged(fsys durable.FS, path string, aside []byte) error {
	name := catalog.DamagedPath(path)
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, durable.FilePerm)
	if err == nil {
		var before durable.Identity
		if before, err = f.Identify(); err == nil {
			if _, err = f.Write(aside); err == nil {
				err = f.Sync()
			}
			if err != nil {
				err = errors.Join(err, f.Truncate(before.Size))
			}
		}
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		return fmt.Errorf("keeping damaged bytes of %s: %w", path, err)
	}
	return nil
}

var _ io.Writer = (*mender)(nil)
