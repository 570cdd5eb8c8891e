package persist

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// ErrNotURL means that the blob cited by an image_url holds no data URL.
var ErrNotURL = errors.New("the blob is not the data URL of an image")

// Missing is a string that could not be brought back.
type Missing struct {
	Path string // JSON pointer into the entry
	Ref  blobref.Ref
	Err  error // get's, or ErrChanged, or ErrNotURL
}

// Restore brings back what Prepare, or oh-my-pi, moved out of an entry, which
// must be valid JSON, in any form. It returns entry itself if there is nothing
// to do. What could not be brought back is reported; its reference stays in
// place of the data, its cut form in place of the string, and its item in the
// list. The error is the context's, or tells that entry is no object.
//
// Other members stay as they are, a crc too: it is that of the line.
func Restore(ctx context.Context, entry []byte, get Get) ([]byte, []Missing, error) {
	return standard.restore(ctx, entry, get)
}

func (l limits) restore(ctx context.Context, entry []byte, get Get) ([]byte, []Missing, error) {
	if !mayCite(entry) {
		return entry, nil, nil
	}
	known, ours := findList(entry)
	r := restoration{ctx: ctx, limits: l, text: entry, get: get, blobs: make(map[blobref.Ref]fetched)}
	if ours {
		r.text, r.list = unwrapped(entry, known)
	}
	tree := r.list.pointers()
	s := survey{limits: l, task: restoring}
	if err := s.run(r.text, tree); err != nil {
		return nil, nil, fmt.Errorf("restoring an entry from its line: %w", err)
	}
	r.done = make([]bool, len(r.list.items))
	r.seen = make([]bool, len(r.list.items))
	last := 0
	for _, at := range s.effective() {
		if at.end == last {
			continue // an item names it, which goes before the general rule
		}
		if ours && known.own == nil && at.start >= known.value.start && at.end <= known.value.end {
			continue // the list itself holds no content
		}
		last = at.end
		if err := r.site(at); err != nil {
			return nil, nil, err
		}
	}
	r.finish(ours)
	return splice(r.text, r.edits), r.missing, nil
}

// unwrapped returns the entry with its own member externalized in its place, if
// it has one, and the list with the spans of that text.
func unwrapped(entry []byte, l list) ([]byte, list) {
	if l.own == nil {
		return entry, l
	}
	own := l.own.value.of(entry)
	text := splice(entry, []edit{{l.value, own}})
	l.value.end = l.value.start + len(own)
	return text, l
}

// pointers is nil when the list names nothing.
func (l *list) pointers() *pointers {
	if len(l.items) == 0 {
		return nil
	}
	tree := new(pointers)
	for i := range l.items {
		tree.add(string(l.items[i].path), i)
	}
	return tree
}

type fetched struct {
	data []byte
	err  error
}

// restoration is one entry on its way back.
type restoration struct {
	ctx context.Context // of the one call this value lives for
	limits
	text    []byte
	list    list
	get     Get
	blobs   map[blobref.Ref]fetched
	edits   []edit
	missing []Missing
	seen    []bool // items whose string was found
	done    []bool // items carried out
}

// fetch gets a blob once. Only the end of the context ends the restoration.
func (r *restoration) fetch(ref blobref.Ref) (fetched, error) {
	if err := r.ctx.Err(); err != nil {
		return fetched{}, fmt.Errorf("restoring an entry from its line: %w", err)
	}
	f, ok := r.blobs[ref]
	if !ok {
		f.data, f.err = r.get(r.ctx, ref)
		if err := r.ctx.Err(); err != nil && f.err != nil {
			return f, fmt.Errorf("restoring an entry from its line: %w", err)
		}
		r.blobs[ref] = f
	}
	return f, nil
}

func (r *restoration) miss(path []byte, ref blobref.Ref, err error) {
	r.missing = append(r.missing, Missing{Path: string(path), Ref: ref, Err: err})
}

func (r *restoration) replace(at span, text []byte) {
	r.edits = append(r.edits, edit{at, text})
}

func (r *restoration) site(at site) error {
	if at.kind == siteItem {
		r.seen[at.item] = true
		return r.item(at, &r.list.items[at.item])
	}
	ref, ok := parseRef(at.of(r.text))
	if !ok {
		return nil
	}
	f, err := r.fetch(ref)
	switch {
	case err != nil:
		return err
	case f.err != nil:
		r.miss(at.path, ref, f.err)
	case at.kind == siteImage:
		r.replace(at.span, quoteBase64(encoding{}, f.data))
	case !bytes.HasPrefix(f.data, []byte("data:image/")) || !utf8.Valid(f.data):
		r.miss(at.path, ref, ErrNotURL)
	default:
		r.replace(at.span, ecmajson.QuoteWTF8(nil, f.data))
	}
	return nil
}

// item carries out an item whose string is at the site.
func (r *restoration) item(at site, it *item) error {
	lit := at.of(r.text)
	if it.form == formLiteral {
		r.done[at.item] = true
		return nil
	}
	ref, ok := parseRef(lit)
	byRef := ok && ref == it.ref
	if it.form == formBase64 && !byRef && !(len(lit) > 2 && isStandIn(string(lit[1:len(lit)-1]))) {
		r.miss(it.path, it.ref, ErrChanged)
		return nil
	}
	f, err := r.fetch(it.ref)
	if err != nil {
		return err
	}
	if f.err != nil {
		r.miss(it.path, it.ref, f.err)
		if it.form == formBase64 && !byRef {
			r.replace(at.span, quoteRef(it.ref)) // not the stand-in: nobody shall take it for the image
		}
		return nil
	}
	if it.form == formBase64 {
		r.replace(at.span, quoteBase64(it.encoding, f.data))
		r.done[at.item] = true
		return nil
	}
	whole := ecmajson.QuoteWTF8(nil, f.data)
	if !sameString(lit, cutLiteral(whole, r.limits.text)) {
		r.miss(it.path, it.ref, ErrChanged)
		return nil
	}
	r.replace(at.span, whole)
	if it.lineCount != nil && !at.lineCount.empty() {
		r.replace(at.lineCount, it.lineCount)
	}
	r.done[at.item] = true
	return nil
}

// finish takes the list out of the entry. If anything is missing, the list stays
// with what is needed to bring back the rest another time: the items not carried
// out, and the marks of what is not to be touched.
func (r *restoration) finish(ours bool) {
	if !ours {
		return
	}
	for i := range r.list.items {
		if it := &r.list.items[i]; !r.seen[i] && it.form != formLiteral {
			r.miss(it.path, it.ref, ErrChanged)
		}
	}
	switch {
	case len(r.missing) > 0:
		left := r.left()
		if r.list.own != nil {
			r.edits = append(r.edits, wrap(r.list.value, left)...)
		} else if len(left) > 0 {
			r.replace(r.list.value, append(append([]byte{'['}, left...), ']'))
		} else {
			r.replace(r.list.member, nil)
		}
	case r.list.own == nil:
		r.replace(r.list.member, nil)
	}
}

// left joins the text of the items that are still needed.
func (r *restoration) left() (text []byte) {
	for i := range r.list.items {
		if it := &r.list.items[i]; !r.done[i] || it.form == formLiteral {
			if len(text) > 0 {
				text = append(text, ',')
			}
			text = append(text, it.text...)
		}
	}
	return text
}

// quoteBase64 gives the literal of data in an encoding.
func quoteBase64(e encoding, data []byte) []byte {
	if e.newline == "" {
		out := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
		return append(e.append(append(out, '"'), data), '"')
	}
	return ecmajson.QuoteWTF8(nil, e.append(nil, data))
}
