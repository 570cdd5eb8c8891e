package persist

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Prepare applies the persistence rules to entry, one JSON object in normal
// form, and returns what the line shall hold: entry itself if nothing changes.
// All blobs that the result cites were put before Prepare returns. On error,
// which is put's or tells that entry is no object, nothing is to be written;
// blobs put until then stay and are cited by nobody.
//
// Prepare takes the entry for content. To copy an entry that was prepared
// already, copy its text: prepared again, its references would be protected as
// if they were words that look like references.
func Prepare(ctx context.Context, entry []byte, put Put) ([]byte, error) {
	return standard.prepare(ctx, entry, put)
}

func (l limits) prepare(ctx context.Context, entry []byte, put Put) ([]byte, error) {
	if l.plain(entry) {
		return entry, nil
	}
	s := survey{limits: l, task: preparing}
	err := s.run(entry, nil)
	if err == nil && entry[len(entry)-1] != '}' {
		err = errNotObject // white space: not in normal form
	}
	if err != nil {
		return nil, fmt.Errorf("preparing an entry for its line: %w", err)
	}
	p := preparation{limits: l, text: entry, put: put}
	for _, at := range s.effective() {
		if err := p.site(ctx, at); err != nil {
			return nil, err
		}
	}
	return p.addList(splice(entry, p.edits)), nil
}

// effective returns the sites in the order of the text, without those within
// dropped members, and without drops from the arguments of tool calls.
func (s *survey) effective() []site {
	slices.SortFunc(s.calls, func(a, b span) int { return a.start - b.start })
	slices.SortFunc(s.sites, func(a, b site) int {
		switch {
		case a.start != b.start:
			return a.start - b.start
		case a.end != b.end:
			return b.end - a.end
		}
		return int(a.kind) - int(b.kind)
	})
	kept := s.sites[:0]
	calls, call, gone := s.calls, span{}, 0
	for _, at := range s.sites {
		if at.start < gone {
			continue
		}
		if at.kind == siteDrop {
			for len(calls) > 0 && calls[0].start <= at.start {
				if calls[0].end > call.end {
					call = calls[0]
				}
				calls = calls[1:]
			}
			if at.start < call.end {
				continue
			}
			gone = at.end
		}
		kept = append(kept, at)
	}
	return kept
}

// preparation is one entry on its way into a line.
type preparation struct {
	limits
	text  []byte
	put   Put
	edits []edit
	items []byte // joined by commas
	last  int    // end of the string that was taken care of last
}

func (p *preparation) site(ctx context.Context, at site) error {
	if at.kind == siteDrop {
		p.edits = append(p.edits, edit{span: at.span})
		return nil
	}
	if at.end == p.last {
		return nil // the same string for another reason, which has not come first
	}
	done, err := p.store(ctx, at)
	if done {
		p.last = at.end
	}
	return err
}

// store does what the kind of site asks for; done is false if it did not apply.
func (p *preparation) store(ctx context.Context, at site) (done bool, err error) {
	lit := at.of(p.text)
	if at.resolved && isRef(lit) {
		p.add(item{form: formLiteral, path: at.path})
		return true, nil
	}
	whole, err := ecmajson.Unquote(lit)
	if err != nil {
		return false, fmt.Errorf("preparing an entry for its line: string at %s: %w", at.path, err)
	}
	switch at.kind {
	case siteImage:
		if len(whole) < p.limits.image {
			return false, nil
		}
		data, e, ok := decodeBase64(whole)
		if !ok {
			return false, nil
		}
		ref, err := p.blob(ctx, at, data)
		if err != nil {
			return false, err
		}
		if at.resolved {
			p.replace(at.span, quoteRef(ref))
		} else {
			mime, _ := ecmajson.Unquote(at.mime.of(p.text))
			p.replace(at.span, ecmajson.AppendString(nil, standIn(string(mime))))
		}
		if !at.resolved || e != (encoding{}) {
			p.add(item{form: formBase64, path: at.path, ref: ref, bytes: len(data), encoding: e})
		}
	case siteURL:
		if !utf8.Valid(whole) {
			return false, nil // half a surrogate pair would not survive in other programs
		}
		ref, err := p.blob(ctx, at, whole)
		if err != nil {
			return false, err
		}
		p.replace(at.span, quoteRef(ref))
	case siteText:
		ref, err := p.blob(ctx, at, whole)
		if err != nil {
			return false, err
		}
		cut := cutLiteral(lit, p.limits.text)
		it := item{form: formCut, path: at.path, ref: ref, bytes: len(whole)}
		if !at.lineCount.empty() {
			it.lineCount = at.lineCount.of(p.text)
			p.replace(at.lineCount, strconv.AppendInt(nil, int64(countLines(cut)), 10))
		}
		p.replace(at.span, cut)
		p.add(it)
	}
	return true, nil
}

func (p *preparation) blob(ctx context.Context, at site, data []byte) (blobref.Ref, error) {
	ref, err := p.put(ctx, data)
	if err != nil {
		return ref, fmt.Errorf("storing the content of %s: %w", at.path, err)
	}
	return ref, nil
}

func (p *preparation) replace(at span, text []byte) {
	p.edits = append(p.edits, edit{at, text})
}

func (p *preparation) add(it item) {
	if len(p.items) > 0 {
		p.items = append(p.items, ',')
	}
	p.items = it.append(p.items)
}

// addList puts the items into the line that the edits gave, around a member of
// that name that the entry has itself, if that could be taken for ours.
func (p *preparation) addList(line []byte) []byte {
	if len(p.items) == 0 && !mayCite(line) {
		return line
	}
	own, ours := findList(line)
	switch {
	case own.value.empty() && len(p.items) > 0:
		end := len(line) - 1 // normal form ends with the brace
		text := append(append([]byte(`,"`+listMember+`":[`), p.items...), ']')
		return splice(line, []edit{{span{end, end}, text}})
	case !own.value.empty() && (ours || len(p.items) > 0):
		return splice(line, wrap(own.value, p.items))
	}
	return line
}

// wrap turns the value at v into the item for the entry's own member, and the
// given ones, joined by commas, follow it.
func wrap(v span, items []byte) []edit {
	after := []byte{'}'}
	if len(items) > 0 {
		after = append(append(after, ','), items...)
	}
	return []edit{
		{span{v.start, v.start}, []byte(`[{"form":"own","value":`)},
		{span{v.end, v.end}, append(after, ']')},
	}
}

func quoteRef(ref blobref.Ref) []byte {
	return append(ref.AppendTo([]byte{'"'}), '"')
}
