package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/process"
)

// State says how much of the output an artifact holds.
type State string

const (
	// Complete is an artifact that holds all output, or one by a program that
	// keeps no provenance.
	Complete State = "complete"
	// Writing is an artifact whose writer still lives, or cannot be seen from
	// this host.
	Writing State = "writing"
	// Interrupted is an artifact whose writer ended without finishing it: it
	// holds what had been written by then.
	Interrupted State = "interrupted"
	// Partial is an artifact that ends early for the reason in the note: a write
	// failed, on a full disk for example.
	Partial State = "partial"
	// Capped is an artifact that holds the head and the tail of the output, as
	// configured.
	Capped State = "capped"
	// Changed is an artifact whose size is not what it was when it was finished, or
	// its checksum, where a Reader found that.
	Changed State = "changed"
	// Missing is an artifact that did not come along when the session was
	// copied: <n>.missing stands in its place. Dir.Lost lists those that were removed.
	Missing State = "missing"
)

// Info describes one artifact.
type Info struct {
	ID      int64
	Tool    string // in the form of CleanTool; "" when missing
	Path    string
	Bytes   int64 // size of the file now
	ModTime time.Time

	State State
	Note  string // why the state is not Complete, for a person; "" otherwise

	Run     string    // Provenance.Run; "" if not known
	Call    string    // Provenance.Call; "" if not known
	Created time.Time // zero if not known
	Lines   int64     // -1 if not known: Reader.Index counts them
	CRC32C  uint32    // of the finished file
	HasCRC  bool
	// Unsettled is set when nothing records how the artifact ended: its writer died,
	// or the record cannot be read. See Dir.Settle.
	Unsettled bool
}

// URL is how the artifact is read within its session.
func (i Info) URL() string { return "artifact://" + strconv.FormatInt(i.ID, 10) }

// maxAvailable bounds how many names an error lists.
const maxAvailable = 50

// NotFoundError is returned for a number without an artifact. It matches
// ErrNotFound.
type NotFoundError struct {
	ID        int64
	Available []int64 // numbers that can be read, ascending
	Reason    string  // why it is missing, where that is known
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Artifact %d not found", e.ID)
	if e.Reason != "" {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	names := make([]string, 0, min(len(e.Available), maxAvailable))
	for _, id := range e.Available[:min(len(e.Available), maxAvailable)] {
		names = append(names, strconv.FormatInt(id, 10))
	}
	return b.String() + ". Available: " + enumerate(names, len(e.Available))
}

func (e *NotFoundError) Is(target error) bool { return target == ErrNotFound }

// enumerate joins names, of which there are total.
func enumerate(names []string, total int) string {
	switch {
	case total == 0:
		return "none"
	case total > len(names):
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), total-len(names))
	default:
		return strings.Join(names, ", ")
	}
}

// Lookup finds artifact id. It costs a few system calls; the directory is listed
// only for an artifact that another program wrote and that was not seen before,
// and to say what is available. It returns ErrNoDirectory or a *NotFoundError.
func (d *Dir) Lookup(ctx context.Context, id int64) (Info, error) {
	if _, err := d.exists(ctx); err != nil {
		return Info{}, err
	}
	side, from := d.provenance(sidecarName(id))
	if from == ours && CleanTool(side.Tool) == side.Tool {
		if info, err := d.describe(id, logName(id, side.Tool), side, from); !errors.Is(err, fs.ErrNotExist) {
			return info, err
		}
	}
	for fresh := false; ; fresh = true {
		s, err := d.list(ctx, fresh)
		if err != nil {
			return Info{}, err
		}
		if from == foreign {
			side, from = d.packed(s, id)
		}
		if name, ok := s.logs[id]; ok {
			if info, err := d.describe(id, name, side, from); !errors.Is(err, fs.ErrNotExist) {
				return info, err
			}
		}
		if name, ok := s.refused[id]; ok && fresh {
			return d.describe(id, name, side, from)
		}
		if fresh {
			return Info{}, &NotFoundError{ID: id, Available: s.available(), Reason: d.absence(id, s)}
		}
	}
}

// describe looks at the file name of artifact id.
func (d *Dir) describe(id int64, name string, side sidecar, from origin) (Info, error) {
	path := d.join(name)
	at, err := d.fs.Identify(path)
	if err != nil {
		return Info{}, fmt.Errorf("looking for artifact %d: %w", id, err)
	}
	if !isRegular(at) {
		return Info{}, fmt.Errorf("artifact %d is refused: %s is not a regular file", id, path)
	}
	_, tool, _ := parseLog(name)
	info := Info{
		ID: id, Tool: tool, Path: path, Bytes: at.Size, ModTime: time.Unix(0, at.ModTime),
		State: Complete, Lines: -1,
	}
	switch {
	case from == unknown:
		info.State, info.Note, info.Unsettled = Interrupted, "its provenance cannot be read", true
	case from == ours && side.Tool == tool:
		info.fill(side)
	}
	return info, nil
}

// fill adds what the sidecar says.
func (i *Info) fill(side sidecar) {
	i.Run, i.Call, i.Created = side.Run, side.Call, side.Created
	switch {
	case side.State == "" && side.Life() == process.Gone:
		i.State, i.Note, i.Unsettled = Interrupted, "its writer ended without finishing it", true
		return
	case side.State == "":
		i.State, i.Note = Writing, fmt.Sprintf("written by process %d on %s", side.PID, side.Host)
		return
	}
	i.State, i.Note = side.State, side.Note
	if side.Bytes != i.Bytes {
		i.State = Changed
		i.Note = fmt.Sprintf("it had %d bytes when it was finished and has %d now", side.Bytes, i.Bytes)
		return
	}
	i.Lines = side.Lines
	if side.CRC32C != nil {
		i.CRC32C, i.HasCRC = uint32(*side.CRC32C), true
	}
}

// maxReason bounds what is read of an <n>.missing file, in bytes.
const maxReason = 4 << 10

// absence says why artifact id is not there, as far as that is known.
func (d *Dir) absence(id int64, s *snapshot) string {
	if _, ok := s.missing[id]; !ok {
		return ""
	}
	reason, err := durable.ReadFile(d.fs, d.join(strconv.FormatInt(id, 10)+missingSuffix), maxReason)
	if err != nil || len(strings.TrimSpace(string(reason))) == 0 {
		return "it did not come along when the session was copied"
	}
	return strings.ToValidUTF8(strings.Join(strings.Fields(string(reason)), " "), "\uFFFD")
}

// List describes every artifact, missing ones included, by ascending number. A
// directory that does not exist has none.
func (d *Dir) List(ctx context.Context) ([]Info, error) {
	s, err := d.list(ctx, true)
	if noDirectory(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(s.logs)+len(s.missing))
	for id := range s.logs {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("listing %s: %w", d.Path(), err)
		}
		info, err := d.Lookup(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	for id := range s.missing {
		if _, there := s.logs[id]; !there {
			infos = append(infos, Info{ID: id, State: Missing, Note: d.absence(id, s), Lines: -1})
		}
	}
	slices.SortFunc(infos, func(a, b Info) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	return infos, nil
}

// Numbers returns the numbers of the artifacts that can be read, ascending. It costs a
// look at the directory where that has not changed since the last listing. A directory
// that does not exist has none.
func (d *Dir) Numbers(ctx context.Context) ([]int64, error) {
	s, err := d.list(ctx, false)
	if noDirectory(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.available(), nil
}

// ByRun finds the artifact that run writes or wrote, and reports whether there
// is one; of several, the newest.
func (d *Dir) ByRun(ctx context.Context, run string) (Info, bool, error) {
	return d.by(ctx, run, func(side sidecar) string { return side.Run })
}

// ByCall is ByRun for the call that a run is of, see Provenance.Call.
func (d *Dir) ByCall(ctx context.Context, call string) (Info, bool, error) {
	return d.by(ctx, call, func(side sidecar) string { return side.Call })
}

// by finds the newest artifact of which what is wanted.
func (d *Dir) by(ctx context.Context, wanted string, of func(sidecar) string) (Info, bool, error) {
	s, err := d.list(ctx, true)
	if noDirectory(err) || wanted == "" {
		return Info{}, false, nil
	}
	if err != nil {
		return Info{}, false, err
	}
	for _, id := range slices.Backward(s.available()) {
		if err := ctx.Err(); err != nil {
			return Info{}, false, fmt.Errorf("looking for the artifact of %s: %w", wanted, err)
		}
		side, from := d.provenance(sidecarName(id))
		if from == foreign {
			side, from = d.packed(s, id)
		}
		if from != ours || of(side) != wanted {
			continue
		}
		info, err := d.Lookup(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		return info, err == nil, err
	}
	return Info{}, false, nil
}

// MarkMissing notes that artifact id exists elsewhere and could not be brought
// here, and why. Lookups then say so.
func (d *Dir) MarkMissing(ctx context.Context, id int64, reason string) error {
	if id < 0 || id > maxID {
		return fmt.Errorf("marking artifact %d as missing: no such number can exist", id)
	}
	release, err := d.lock(ctx)
	if err != nil {
		return fmt.Errorf("marking artifact %d as missing: %w", id, err)
	}
	defer release()
	name := d.join(strconv.FormatInt(id, 10) + missingSuffix)
	if err := durable.WriteFile(d.fs, name, d.opt.Sync, []byte(reason+"\n")); err != nil {
		return fmt.Errorf("marking artifact %d as missing: %w", id, err)
	}
	return nil
}
