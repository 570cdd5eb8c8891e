package artifacts

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// way is how a file came along.
type way uint8

const (
	reflinked way = iota
	linked
	copied
)

// output is an artifact on its way.
type output struct {
	id    int64
	name  string
	src   durable.File
	err   error            // of opening it
	at    durable.Identity // when it was opened
	final bool             // nobody writes to it again
	how   way
}

// errDiscarded says that the writer of an artifact removed it meanwhile.
var errDiscarded = errors.New("it was discarded by its writer")

// outputs brings artifacts along, then what is known of each. In this order: a writer
// records how its file ended before it closes it, so the provenance of a file that
// nobody has open is final.
func (d *cloneDir) outputs(all []output, step func() error) error {
	known, sizes := d.packedIDs() // provenance that comes in a pack
	var p *packing
	unpacked := 0
	for _, o := range all {
		if d.has(sidecarName(o.id)) && !known[o.id] {
			unpacked++
		}
	}
	if unpacked >= packFrom {
		p = newPacking(min(unpacked, maxPacked))
	}
	came := make([]output, 0, len(all))
	opened, giveBack, stop := d.open(all, known, p)
	defer stop()
	for batch := range opened {
		for i := range batch {
			o := &batch[i]
			switch err := d.output(o); {
			case err == nil:
				came = append(came, *o)
			case errors.Is(err, errDiscarded):
				d.done.Vanished = true
			default:
				if err := d.missing(*o, err); err != nil {
					return err
				}
				d.lost[o.id] = true
			}
			if err := step(); err != nil {
				return err
			}
		}
		giveBack <- batch
	}
	if p != nil && len(p.ids) >= packFrom && d.publish(p) == nil {
		maps.Copy(known, p.ids)
	}
	if p != nil {
		maps.Copy(sizes, p.sides)
	}
	for _, o := range came {
		if side, ok := sizes[o.id]; ok {
			d.compare(o, side)
		} else if d.has(sidecarName(o.id)) && o.final {
			if side, from := d.provenance(o.id); from == ours {
				d.compare(o, side)
			}
		}
	}
	if err := d.provenances(came, known); err != nil {
		return err
	}
	if err := d.withdraw(came); err != nil {
		return err
	}
	return d.numbersAlone(all, step)
}

// Artifacts are opened a batch at a time, so that the two goroutines seldom wait for
// each other, and so many at once are open.
const (
	batchSize  = 16
	maxBatches = 4
)

// open opens artifacts, looks at them and packs what is known of them, while those
// before are brought along. Who is done with a batch gives it back, and who is done
// with all, or wants no more of them, calls stop.
func (d *cloneDir) open(all []output, known map[int64]bool, p *packing) (opened <-chan []output, giveBack chan<- []output, stop func()) {
	out, back := make(chan []output, maxBatches), make(chan []output, maxBatches)
	enough, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		made := 0
		for batch := range slices.Chunk(all, batchSize) {
			if made++; made > maxBatches {
				select {
				case b := <-back:
					closeAll(b)
				case <-enough:
					return
				}
			}
			for i := range batch {
				if d.look(&batch[i]); p != nil && batch[i].final && !known[batch[i].id] {
					p.add(d.source, batch[i].id)
				}
			}
			out <- batch
		}
	}()
	return out, back, func() {
		close(enough)
		<-done
		closeAll(all)
	}
}

// closeAll closes those of the artifacts that are open.
func closeAll(all []output) {
	for i := range all {
		if o := &all[i]; o.src != nil {
			o.src.Close()
			o.src = nil
		}
	}
}

// look opens an artifact.
func (d *cloneDir) look(o *output) {
	if o.src, o.err = d.fs.OpenFile(filepath.Join(d.from, o.name), os.O_RDONLY, 0); o.err != nil {
		if errors.Is(o.err, fs.ErrNotExist) {
			o.err = errDiscarded
		}
		return
	}
	o.final = d.isFinal(o.src, o.id)
	o.at, o.err = o.src.Identify()
}

// output brings the bytes of one artifact along.
func (d *cloneDir) output(o *output) error {
	if o.err != nil {
		return o.err
	}
	to := filepath.Join(d.to, o.name)
	var err error
	if o.how, err = d.share(o.src, o.at, to, o.final); err != nil {
		if now, ierr := o.src.Identify(); ierr == nil && now.Links == 0 {
			return errDiscarded
		}
		return err
	}
	d.lineIndex(o, to)
	return nil
}

// isFinal reports whether nobody will ever write to an artifact again: nobody has it
// open for writing, and it is never opened for that again. Where the system does not
// tell, its provenance does.
func (d *cloneDir) isFinal(src durable.File, id int64) bool {
	if idle, known := durable.Idle(src); known {
		return idle
	}
	side, from := d.provenance(id)
	return from == ours && (side.State != "" || side.Life() == process.Gone)
}

func (d *cloneDir) provenance(id int64) (sidecar, origin) {
	return d.source.provenance(sidecarName(id))
}

// share makes to from src, which looked like at: as a reflink, else a hard link where
// that is allowed, else a copy of at.Size bytes.
func (d *cloneDir) share(src durable.File, at durable.Identity, to string, mayLink bool) (way, error) {
	if !d.noReflinks {
		err := d.reflink(src, to, at.Size)
		if err == nil {
			d.done.Bytes += at.Size
			return reflinked, nil
		}
		d.noReflinks = errors.Is(err, errors.ErrUnsupported)
	}
	if mayLink {
		if d.fs.LinkFile(src, to) == nil {
			d.done.Bytes += at.Size
			d.done.Shared += at.Size
			return linked, nil
		}
	}
	d.done.Bytes += at.Size
	return copied, d.copyTo(src, to, at.Size)
}

// reflink makes to a clone of src, cut to size bytes: src may have grown since it was
// looked at. It leaves nothing of to when it fails.
func (d *cloneDir) reflink(src durable.File, to string, size int64) error {
	dst, err := durable.CreateExclusive(d.fs, to)
	if err != nil {
		return err
	}
	err = dst.CloneFrom(src)
	if err == nil {
		err = cutTo(dst, size)
	}
	if err == nil {
		if d.reflinks++; d.opt.Sync && d.reflinks <= syncedOneByOne {
			err = dst.Sync()
		}
	}
	return d.closeMade(dst, err)
}

func cutTo(f durable.File, size int64) error {
	at, err := f.Identify()
	if err != nil || at.Size <= size {
		return err
	}
	return f.Truncate(size)
}

// copyTo leaves nothing of to when it fails.
func (d *cloneDir) copyTo(src durable.File, to string, size int64) error {
	dst, err := durable.CreateExclusive(d.fs, to)
	if err != nil {
		return err
	}
	err = durable.Copy(dst, src, 0, size)
	if err == nil && d.opt.Sync {
		err = dst.Sync()
	}
	return d.closeMade(dst, err)
}

// closeMade closes a file that was made here, and removes it after an error.
func (d *cloneDir) closeMade(f durable.File, err error) error {
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = d.fs.Remove(f.Name()) // the first error is the one to report
	}
	return err
}

// record brings along one of the small files of ours that say something of another
// file. They are replaced, never written to, so a hard link will do everywhere.
func (d *cloneDir) record(name string) error {
	from, to := filepath.Join(d.from, name), filepath.Join(d.to, name)
	err := d.fs.Link(from, to)
	if err == nil {
		var now durable.Identity
		if now, err = d.fs.Identify(to); err == nil && isRegular(now) {
			return nil
		}
		_ = d.fs.Remove(to) // a symbolic link, or cannot be looked at; copying says what it is
	}
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return d.file(name, false)
}

// file brings along any other file.
func (d *cloneDir) file(name string, mayLink bool) error {
	from := filepath.Join(d.from, name)
	src, err := d.fs.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	at, err := src.Identify()
	if err != nil {
		return err
	}
	if mayLink {
		idle, known := durable.Idle(src)
		mayLink = idle || !known
	}
	_, err = d.share(src, at, filepath.Join(d.to, name), mayLink)
	return err
}

// maxTail bounds a line without its newline that is looked at, in bytes.
const maxTail = 64 << 20

// log brings along the log of a nested session, to the end of its last whole line.
func (d *cloneDir) log(name string) error {
	src, err := d.fs.OpenFile(filepath.Join(d.from, name), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	at, err := src.Identify()
	if err != nil {
		return err
	}
	end, err := wholeLines(src, at.Size)
	if err != nil {
		return err
	}
	to := filepath.Join(d.to, name)
	d.done.Bytes += end
	if !d.noReflinks {
		err := d.reflink(src, to, end)
		if err == nil {
			return nil
		}
		d.noReflinks = errors.Is(err, errors.ErrUnsupported)
	}
	return d.copyTo(src, to, end)
}

// wholeLines is how much of the first size bytes of a log are whole records: up to
// the last newline, or all when what follows it is a record without one.
func wholeLines(src durable.File, size int64) (int64, error) {
	for n := int64(4 << 10); size > 0; n *= 4 {
		n = min(n, size)
		tail := make([]byte, n)
		if _, err := src.ReadAt(tail, size-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(tail, '\n'); i >= 0 {
			if rest := tail[i+1:]; len(rest) == 0 || json.Valid(rest) {
				return size, nil
			}
			return size - n + int64(i) + 1, nil
		}
		if n == size || n >= maxTail {
			break // no log at all, or none that can be told
		}
	}
	return size, nil
}
