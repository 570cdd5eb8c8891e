package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/catalog"
	"github.com/agentrun/agentrun/session/internal/record"
)

// ErrUnknown is returned by File for a file in which no line is one of a format that
// is known here.
var ErrUnknown = errors.New("no line of it is one of agentrun, pi, oh-my-pi, Claude Code or Codex")

// Format is a program's way to write a session.
type Format = record.Format

// The formats that are recognised, by what is in the file.
const (
	FormatSession = record.FormatSession // of agentrun, pi and oh-my-pi
	FormatClaude  = record.FormatClaude  // a transcript of Claude Code
	FormatCodex   = record.FormatCodex   // a rollout of Codex
)

// File examines one file, of whatever format. A log of agentrun, pi or oh-my-pi is
// examined as by Sessions, transcripts of Claude Code and Codex are only read.
func (d *Doctor) File(ctx context.Context, path string) error {
	format, err := Sniff(ctx, path)
	if err != nil {
		return err
	}
	if format == FormatSession {
		return d.Sessions(ctx, path)
	}
	d.sum.Logs++
	return d.transcript(ctx, path, format)
}

// transcript reads a file of Claude Code or Codex, wherever it lies.
func (d *Doctor) transcript(ctx context.Context, path string, format Format) error {
	t := &transcript{d: d, path: path, format: format}
	if err := t.read(ctx); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	t.finish()
	return nil
}

// maxSniff bounds how much of a file is read to recognise it.
const maxSniff = 4 << 20

// Sniff recognises the format of a file by its content.
func Sniff(ctx context.Context, path string) (Format, error) {
	if catalog.IsCold(path) {
		return FormatSession, nil
	}
	f, err := durable.OS.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return "", fmt.Errorf("examining a file: %w", err)
	}
	defer f.Close()
	found := Format("")
	blank := true
	err = eachLine(ctx, io.LimitReader(f, maxSniff), func(line []byte, _ int, _ int64) bool {
		blank = blank && len(bytes.Trim(line, "\x00 \t\r\n")) == 0
		for _, part := range objects(line) {
			if found = record.FormatOf(part); found != "" {
				return false
			}
		}
		return true
	})
	switch _, named := catalog.Stem(path); {
	case err != nil:
		return "", fmt.Errorf("examining %s: %w", path, err)
	case found == "" && blank && named:
		return FormatSession, nil // nothing is left that could tell
	case found == "":
		return "", fmt.Errorf("examining %s: %w", path, ErrUnknown)
	}
	return found, nil
}

// objects returns the JSON objects in a line, damaged or not.
func objects(line []byte) (parts [][]byte) {
	line = record.Trim(line)
	if len(line) > 0 && line[0] == '{' && ecmajson.Valid(line) {
		return [][]byte{line}
	}
	for at := 0; at < len(line); {
		i := bytes.Index(line[at:], []byte(`{"`))
		if i < 0 {
			break
		}
		at += i
		n, err := ecmajson.Scan(line[at:])
		if err != nil {
			at++
			if len(line) > record.MaxCorrect {
				break // what is torn and large is not searched from each of its bytes
			}
			continue
		}
		parts = append(parts, line[at:at+n])
		at += n
	}
	return parts
}

// eachLine hands the lines of r to each, without their newlines, until it returns
// false. A line is valid until each returns.
func eachLine(ctx context.Context, r io.Reader, each func(line []byte, number int, offset int64) bool) error {
	in := bufio.NewReaderSize(r, 1<<20)
	var long []byte
	for number, offset := 1, int64(0); ; {
		part, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, part...)
			continue
		}
		line := part
		if len(long) > 0 {
			long = append(long, part...)
			line = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if len(line) > 0 && !each(bytes.TrimSuffix(line, []byte("\n")), number, offset) || err != nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		number, offset, long = number+1, offset+int64(len(line)), long[:0]
	}
}

// transcript is a file of Claude Code or Codex while it is read.
type transcript struct {
	d      *Doctor
	path   string
	format Format

	records   int
	last      string // time of the last whole record
	damaged   *damaged
	ids       map[string]int // of records, by line
	parents   []parent
	parentOf  map[string]string
	asked     map[string]spot // tool calls without a result yet
	answered  map[string]bool
	unasked   map[string]spot
	askedIn   []string // ids in order
	ordinal   int64
	ordinals  bool
	unordered bool // told
	sawHeader bool
}

// spot is where something is in the file.
type spot struct {
	line   int
	offset int64
	bytes  int64
	name   string
}

// parent is a record that names another one.
type parent struct {
	id, parent string
	spot
}

// damaged is a stretch that waits for the record behind it.
type damaged struct {
	kind session.Kind
	spot
	bytes []byte
	since string
}

func (t *transcript) read(ctx context.Context) error {
	f, err := durable.OS.OpenFile(t.path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	t.ids, t.parentOf = map[string]int{}, map[string]string{}
	t.asked, t.answered, t.unasked = map[string]spot{}, map[string]bool{}, map[string]spot{}
	return eachLine(ctx, f, func(line []byte, number int, offset int64) bool {
		t.line(line, number, offset)
		t.d.read(int64(len(line)) + 1)
		return true
	})
}

func (t *transcript) line(line []byte, number int, offset int64) {
	text := record.Trim(line)
	switch {
	case len(text) == 0:
		return
	case ecmajson.Valid(text):
		if text[0] != '{' {
			t.damage(session.KindScalar, line, number, offset)
			return
		}
		t.record(text, number, offset)
		return
	}
	if whole := wholeObjects(text); len(whole) > 1 {
		t.damage(session.KindJoined, line, number, offset)
		for _, part := range whole {
			t.record(part, number, offset)
		}
		return
	}
	at := 0
	for _, part := range t.found(line) {
		t.rest(line[at:part.from], number, offset+int64(at))
		t.record(line[part.from:part.to], number, offset+int64(part.from))
		at = part.to
	}
	t.rest(line[at:], number, offset+int64(at))
}

// rest takes a stretch of a damaged line in which no record shows by its members.
func (t *transcript) rest(b []byte, line int, offset int64) {
	for _, p := range record.Split(b) {
		part := b[p.Off : p.Off+p.Len]
		if p.Kind == "" {
			t.record(part, line, offset+int64(p.Off))
		} else {
			t.damage(p.Kind, part, line, offset+int64(p.Off))
		}
	}
}

// stretch is a part of a line.
type stretch struct{ from, to int }

// found returns the records in a damaged line that show by their members, also where
// one stands in the middle of another.
func (t *transcript) found(line []byte) (parts []stretch) {
	budget := 64 * record.MaxCorrect // bytes that are looked at
	for at := 0; budget > 0; {
		i := bytes.Index(line[at:], []byte(`{"`))
		if i < 0 {
			break
		}
		at += i
		n, err := ecmajson.Scan(line[at:])
		if err != nil {
			budget -= len(line) - at
			at++
			continue
		}
		budget -= n
		if record.FormatOf(line[at:at+n]) == t.format {
			parts = append(parts, stretch{at, at + n})
		}
		at += n
	}
	return parts
}

// wholeObjects takes apart a line of objects and nothing else.
func wholeObjects(line []byte) (parts [][]byte) {
	for len(line) > 0 {
		n, err := ecmajson.Scan(line)
		if err != nil || line[0] != '{' {
			return nil
		}
		parts = append(parts, line[:n])
		line = record.Trim(line[n:])
	}
	return parts
}

// maxKept bounds how much of a damaged stretch is kept to compare it with what
// follows.
const maxKept = 64 << 10

func (t *transcript) damage(kind session.Kind, b []byte, line int, offset int64) {
	t.flush(nil)
	t.damaged = &damaged{kind, spot{line: line, offset: offset, bytes: int64(len(b))}, bytes.Clone(b[:min(len(b), maxKept)]), t.last}
}

// flush reports the damage that waited for next, the whole record behind it; nil at
// the end of the file or before more damage.
func (t *transcript) flush(next []byte) {
	g := t.damaged
	if g == nil {
		return
	}
	t.damaged = nil
	f := Finding{Kind: string(g.kind), File: t.path, Unmendable: true}.at(g.line, g.offset, g.spot.bytes)
	switch {
	case g.kind == session.KindTorn && len(next) >= len(g.bytes) && bytes.HasPrefix(next, record.Trim(g.bytes)):
		f.What = "a half-written record, and the whole one behind it; nothing is lost"
	case g.kind == session.KindTorn && next == nil:
		f.What = fmt.Sprintf("the file ends within a record, after %d bytes of it; that record is lost, all before it are there", g.spot.bytes)
	case g.kind == session.KindTorn:
		f.What = fmt.Sprintf("a record breaks off after %d bytes; it is lost, those around it are there", g.spot.bytes)
	case g.kind == session.KindNUL:
		f.What = fmt.Sprintf("%d zero bytes, as a power cut leaves them; what should have stood here is lost", g.spot.bytes)
	case g.kind == session.KindJoined:
		f.What = "records run together on one line, as writers that do not wait for each other leave them; nothing is lost"
	case g.kind == session.KindScalar:
		f.What = "JSON that is no record; nothing is lost"
	default:
		f.What = fmt.Sprintf("%d bytes that are no record", g.spot.bytes)
	}
	if t.format == FormatClaude && g.kind != session.KindJoined {
		f.What += "; Claude Code may resume only what stands before it"
	}
	if g.since != "" {
		f.What += fmt.Sprintf(" (behind the record of %s)", g.since)
	}
	t.say(f)
}

// say reports a finding of a file that is never changed.
func (t *transcript) say(f Finding) {
	f.File, f.Unmendable = t.path, true
	f.What += "; the file is another program's and stays as it is"
	t.d.report(f)
}

// record takes a whole record.
func (t *transcript) record(raw []byte, line int, offset int64) {
	t.flush(raw)
	t.records++
	at := spot{line: line, offset: offset, bytes: int64(len(raw))}
	if s := gjson.GetBytes(raw, "timestamp"); s.Type == gjson.String {
		t.last = s.Str
	}
	if t.format == FormatClaude {
		t.claude(raw, at)
	} else {
		t.codex(raw, at)
	}
}

// ask and answer pair the calls of tools with their results.
func (t *transcript) ask(id, name string, at spot) {
	if id == "" || t.answered[id] {
		return
	}
	if _, known := t.asked[id]; known {
		return
	}
	at.name = name
	t.asked[id] = at
	t.askedIn = append(t.askedIn, id)
	delete(t.unasked, id)
}

func (t *transcript) answer(id string, at spot) {
	if id == "" {
		return
	}
	if _, known := t.asked[id]; !known && !t.answered[id] {
		t.unasked[id] = at
		return
	}
	t.answered[id] = true
	delete(t.asked, id)
}

// maxNamed bounds how much of an id stands in a sentence.
const maxNamed = 80

func short(id string) string {
	if len(id) > maxNamed {
		return id[:maxNamed] + "…"
	}
	return id
}

// finish reports what only the whole file tells.
func (t *transcript) finish() {
	t.flush(nil)
	t.d.sum.Entries += t.records
	t.d.sum.Unsealed += t.records
	for _, p := range t.parents {
		if _, there := t.ids[p.parent]; !there {
			t.say(Finding{Kind: string(session.KindOrphan), What: fmt.Sprintf(
				"record %s names the parent %s, which is not in the file: a resume shows only what comes after it; the records before it are still there", short(p.id), short(p.parent))}.at(p.line, p.offset, p.bytes))
		}
	}
	t.cycles()
	for _, id := range t.askedIn {
		if at, open := t.asked[id]; open {
			t.say(Finding{Kind: KindUnanswered, What: fmt.Sprintf(
				"the call %s of the tool %s has no result: the run was interrupted, and a provider refuses such a history until it is completed", short(id), short(at.name))}.at(at.line, at.offset, at.bytes))
		}
	}
	for id, at := range t.unasked {
		t.say(Finding{Kind: KindUnasked, What: fmt.Sprintf(
			"a result answers the call %s, which is not in the file: a provider refuses such a history", short(id))}.at(at.line, at.offset, at.bytes))
	}
	if t.format == FormatCodex && !t.sawHeader && t.records > 0 {
		t.say(Finding{Kind: string(session.KindHeader), What: "the rollout does not begin with its session_meta: Codex does not list it; its records are there"}.at(1, 0, 0))
	}
}

// cycles reports records that are their own ancestors, one of each circle.
func (t *transcript) cycles() {
	const (
		walking = 1
		done    = 2
	)
	state := make(map[string]int, len(t.parentOf))
	for _, p := range t.parents {
		var way []string
		for id := p.id; id != "" && state[id] != done; id = t.parentOf[id] {
			if state[id] == walking {
				t.say(Finding{Kind: string(session.KindCycle), What: fmt.Sprintf(
					"record %s is its own ancestor: programs may hang or show nothing; nothing is lost", short(id))}.at(p.line, p.offset, p.bytes))
				break
			}
			state[id] = walking
			way = append(way, id)
		}
		for _, id := range way {
			state[id] = done
		}
	}
}
