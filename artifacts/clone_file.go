package artifacts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

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
	known := d.packedIDs() // provenance that comes in a pack
	var unpacked []int64
	for _, o := range all {
		if d.has(sidecarName(o.id)) && !known[o.id] {
			unpacked = append(unpacked, o.id)
		}
	}
	var p *packing
	if len(unpacked) >= packFrom {
		p = d.startPacking(unpacked)
		defer func() { <-p.done }()
	}
	came := make([]output, 0, len(all))
	opened, stop := d.open(all)
	defer stop()
	for o := range opened {
		err := d.output(o)
		switch {
		case err == nil:
			came = append(came, *o)
		case errors.Is(err, errDiscarded):
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
	if p != nil {
		if <-p.done; len(p.ids) >= packFrom && d.publish(p) == nil {
			maps.Copy(known, p.ids)
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

// maxOpen is how many artifacts are open at once.
const maxOpen = 32

// open opens artifacts and looks at them, while those before are brought along. Who
// is done with the channel, or wants no more of it, calls stop.
func (d *cloneDir) open(all []output) (opened <-chan *output, stop func()) {
	out := make(chan *output, maxOpen)
	enough := make(chan struct{})
	go func() {
		defer close(out)
		for _, o := range all {
			d.look(&o)
			select {
			case out <- &o:
			case <-enough:
				o.close()
				return
			}
		}
	}()
	return out, func() {
		close(enough)
		for o := range out {
			o.close()
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

func (o *output) close() {
	if o.src != nil {
		o.src.Close()
		o.src = nil
	}
}

// output brings the bytes of one artifact along.
func (d *cloneDir) output(o *output) error {
	defer o.close()
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
	return d.source().provenance(sidecarName(id))
}

func (d *cloneDir) source() *Dir { return Open(d.from, Options{FS: d.fs}) }

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
		if d.link(src.Name(), to, at) == nil {
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

// link makes to a hard link to the regular file that looked like at. Somebody may
// have put another file, or a symbolic link, under its name meanwhile.
func (d *cloneDir) link(from, to string, at durable.Identity) error {
	if err := d.fs.Link(from, to); err != nil {
		return err
	}
	now, err := d.fs.Identify(to)
	if err == nil && !(isRegular(now) && now.SameFile(at)) {
		err = fmt.Errorf("%s was replaced just now", from)
	}
	if err != nil {
		_ = d.fs.Remove(to) // the first error is the one to report
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
