package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"

	"github.com/agentrun/agentrun/session/internal/record"
)

// examined is a log that was read whole, whatever its state: one without a header
// as well, and with the single bits that flipped turned back.
type examined struct {
	st   *state
	raw  source // as it lies in the file, decompressed
	tree *Tree
	// lost says how the header in st came to be when the file has none that can be
	// read at its beginning.
	lost    *lostHeader
	flips   []flip
	damage  []Damage
	frames  []Damage // of a compressed log that is read without its table
	strange bool     // nothing in the file shows that it is a session at all
}

// flip is a bit of the log that is turned back, with the damage it is told as.
type flip struct {
	at   int64
	mask byte
	told Damage
}

// lostHeader is how a header was found again.
type lostHeader struct {
	told Damage
	from string // a clause: where the new one is from
}

// patched is a log with single bits turned back.
type patched struct {
	io.ReaderAt
	flips []flip
}

func (p patched) ReadAt(b []byte, off int64) (int, error) {
	n, err := p.ReaderAt.ReadAt(b, off)
	for _, f := range p.flips {
		if f.at >= off && f.at < off+int64(n) {
			b[f.at-off] ^= f.mask
		}
	}
	return n, err
}

// examine reads the log at path. Close its state.
func (m *Manager) examine(ctx context.Context, path string) (*examined, error) {
	st, err := openState(m.opts.FS, m.blobs, path)
	var x *examined
	if err == nil {
		x = &examined{st: st, raw: st.src}
		err = x.read(ctx, m, path)
	}
	if err != nil && ctx.Err() == nil && isCold(m.opts.FS, path) {
		// The table of its frames, or one of them.
		var frames []Damage
		if st != nil {
			st.close()
		}
		if st, frames, err = openSalvaged(ctx, m.opts.FS, m.blobs, path); err == nil {
			x = &examined{st: st, raw: st.src, frames: frames}
			err = x.read(ctx, m, path)
		}
	}
	if err != nil {
		if st != nil {
			st.close()
		}
		return nil, fmt.Errorf("reading the log %s: %w", path, err)
	}
	return x, nil
}

func (x *examined) read(ctx context.Context, m *Manager, path string) error {
	x.flipHeader()
	if err := x.scan(ctx, m, path); err != nil {
		return err
	}
	flips := x.findFlips()
	if len(flips) > 0 {
		// What stands behind a flipped bit was misread: all of it is read again.
		x.flips = append(x.flips, flips...)
		if err := x.scan(ctx, m, path); err != nil {
			return err
		}
	}
	for _, f := range x.flips {
		x.damage = append(x.damage, f.told)
	}
	sortDamage(x.damage)
	x.damage = append(slices.Clone(x.frames), x.damage...) // their offsets are those of the compressed file
	return nil
}

// source is the log with its flipped bits turned back.
func (x *examined) source() source {
	if len(x.flips) == 0 {
		return x.raw
	}
	return source{patched{x.raw.ReaderAt, x.flips}, x.raw.size}
}

// flipHeader turns back a bit of the header before anything else is read: a version
// that changed would have the whole file taken for another one.
func (x *examined) flipHeader() {
	p, err := readPreamble(x.raw)
	if err != nil || p.none || p.header.CRC == record.CRCOK || p.header.CRC == record.CRCNone && !record.BrokenSeal(p.line) {
		return
	}
	if f, ok := record.Correct(p.line); ok {
		x.flips = append(x.flips, flip{p.at + int64(f.Offset), f.Mask, Damage{
			Line: lineAt(x.raw, p.at), Offset: p.at, Bytes: int64(len(p.line)), Kind: KindChecksum,
		}})
	}
}

// scan reads preamble and tree.
func (x *examined) scan(ctx context.Context, m *Manager, path string) error {
	st := x.st
	st.src, st.image, st.preamble = x.source(), nil, preamble{}
	x.damage, x.lost, x.strange = nil, nil, false
	err := st.read()
	if err != nil && !errors.Is(err, ErrNotSession) {
		return err
	}
	if err != nil || st.none && hasNUL(st.src) || st.header.Torn {
		st.src, st.image = x.source(), nil
		if err := x.withoutHeader(ctx, m, path); err != nil {
			return err
		}
	} else if !st.none {
		x.damage = append(x.damage, preambleDamage(st)...)
	}
	t := &Tree{begin: st.end, end: st.end, lines: st.linesBefore(), session: st.header.ID, origin: st.origin(), cited: newOutside()}
	if !st.none {
		if err := t.extend(ctx, st.src, st.src.size); err != nil {
			return err
		}
	}
	x.tree = t
	for _, d := range t.damage {
		if st.image != nil {
			if d = st.image.origin(d); x.lost != nil {
				d.Line-- // the image has a header more than the file
			}
		}
		if x.lost != nil && d.Line == x.lost.told.Line && d.Offset < x.lost.told.Offset+x.lost.told.Bytes {
			continue // told as the header
		}
		x.damage = append(x.damage, d)
	}
	if x.lost != nil {
		x.damage = append(x.damage, x.lost.told)
		x.strange = x.strange && t.Len() == 0
	}
	return nil
}

// hasNUL reports whether a file in which there is no record has NULs all the same:
// then a record was lost, where an empty file has not begun.
func hasNUL(src source) bool {
	found := false
	_ = eachForward(context.Background(), src, 0, src.size, func(line []byte, _ int64) bool {
		found = bytes.IndexByte(line, 0) >= 0
		return !found
	})
	return found
}

// preambleDamage is what is wrong before the first entry of a file whose header can
// be read.
func preambleDamage(st *state) (list damageList) {
	n := 0
	if st.image != nil {
		return nil // the image begins with a header of ours
	}
	_ = eachForward(context.Background(), st.src, 0, st.at, func(line []byte, off int64) bool {
		n++
		if bytes.IndexByte(line, 0) >= 0 {
			list.add(Damage{Line: n, Offset: off, Bytes: int64(len(line)), Kind: KindNUL})
		}
		return true
	})
	if st.header.CRC == record.CRCMismatch {
		list.add(Damage{Line: n + 1, Offset: st.at, Bytes: int64(len(st.line)), Kind: KindChecksum})
	}
	return list
}

// lineAt is the number of the line that begins at off.
func lineAt(src source, off int64) int {
	n := 1
	_ = eachForward(context.Background(), src, 0, off, func([]byte, int64) bool { n++; return true })
	return n
}

// maxFlips bounds how many damaged lines are tried: more is no matter of single bits.
const maxFlips = 1000

// findFlips tries to mend the damage of the last scan by turning back one bit of
// each damaged line. Only lines that were sealed tell which bit.
func (x *examined) findFlips() (flips []flip) {
	if x.st.image != nil {
		return nil // what is migrated was never sealed
	}
	tried := 0
	covered := int64(-1) // everything before it is mended
	for _, d := range x.damage {
		switch d.Kind {
		case KindOrphan, KindCycle, KindDuplicate:
			continue
		}
		if d.Offset < covered || d.Lines > 1 {
			continue
		}
		if tried++; tried > maxFlips {
			break
		}
		f, end, ok := x.flipAt(d)
		if !ok {
			continue
		}
		covered = end
		flips = append(flips, f)
	}
	return flips
}

// flipAt tries to mend the line that d is on. end is where the mended stretch ends.
func (x *examined) flipAt(d Damage) (f flip, end int64, ok bool) {
	src := x.source()
	a, b, ok := lineAround(src, d.Offset)
	if !ok {
		return flip{}, 0, false
	}
	line, err := readSpan(src, a, b, nil)
	if err != nil {
		return flip{}, 0, false
	}
	told := Damage{Line: d.Line, Offset: a, Bytes: b - a, Kind: d.Kind, ID: d.ID}
	if c, ok := record.Correct(line); ok {
		return flip{a + int64(c.Offset), c.Mask, told}, b, true
	}
	// The newline behind a record became something else.
	for _, p := range record.Split(line) {
		if p.Kind == "" || p.Len != 1 || d.Kind != KindHeader && int64(p.Off) != d.Offset-a {
			continue
		}
		mask := line[p.Off] ^ '\n'
		if bits.OnesCount8(mask) == 1 && sealedBefore(line[:p.Off]) {
			told.Offset, told.Bytes, told.Kind = a+int64(p.Off), 1, p.Kind
			return flip{told.Offset, mask, told}, told.Offset + 1, true
		}
	}
	// Something in a record became a newline.
	if b+1 < src.size {
		if _, c, ok := lineAround(src, b+1); ok && c-a <= record.MaxCorrect {
			if line, err = readSpan(src, a, c, line); err == nil {
				if k, ok := record.Correct(line); ok && int64(k.Offset) == b-a {
					told.Bytes = c - a
					return flip{b, k.Mask, told}, c, true
				}
			}
		}
	}
	return flip{}, 0, false
}

// sealedBefore reports whether b ends with a record whose crc holds.
func sealedBefore(b []byte) bool {
	parts := record.Split(b)
	if len(parts) == 0 {
		return false
	}
	last := parts[len(parts)-1]
	return last.Kind == "" && record.Verify(b[last.Off:last.Off+last.Len]) == record.CRCOK
}

// lineAround returns the line that the byte at off is in, unless it is too long to
// be corrected.
func lineAround(src source, off int64) (a, b int64, ok bool) {
	from, to := max(0, off-record.MaxCorrect), min(src.size, off+record.MaxCorrect)
	buf, err := readSpan(src, from, to, nil)
	if err != nil {
		return 0, 0, false
	}
	a, b = from, to
	if i := bytes.LastIndexByte(buf[:off-from], '\n'); i >= 0 {
		a = from + int64(i) + 1
	}
	if i := bytes.IndexByte(buf[off-from:], '\n'); i >= 0 {
		b = off + int64(i)
	}
	return a, b, b-a <= record.MaxCorrect
}
