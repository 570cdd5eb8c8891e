package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/entry"
)

// A reference to a blob stands in the place of data at places that the persistence rules
// know. Other programs, and later versions of them, may leave one elsewhere in a block:
// a stray. A provider that is sent it refuses the request, and every one after it, so the
// context of Resume has the data in its place, or a note.

// stray is a reference in a block where Restore leaves it.
type stray struct {
	path  string // JSON pointer
	ref   blobref.Ref
	key   string // nearest member around it
	block string // JSON pointer of the block in the content, "" when it is in none
	typ   string // of the block
	data  string // what belongs in its place, "" if that cannot be had
	why   string // it cannot, where the blob can be read
}

// isWords reports whether strings of such a block are words, or signed: they mean
// themselves, whatever they look like.
func isWords(typ string) bool {
	switch typ {
	case entry.BlockText, entry.BlockThinking, entry.BlockRedactedThinking, entry.BlockToolCall,
		entry.BlockFallback, entry.BlockAnthropicServerTool, "reasoning":
		return true
	}
	return false
}

// isAddress reports whether strings under a key name or describe something and are no
// data themselves.
func isAddress(key string) bool {
	switch key {
	case "text", "title", "name", "filename", "path", "uri", "id", "type", "mimeType", "media_type":
		return true
	}
	return false
}

// maxBlockDepth bounds how deep a block is looked into.
const maxBlockDepth = 32

// blockString is a string within a block.
type blockString struct {
	stray
	value gjson.Result
}

// eachBlockString hands out the strings of the blocks that a model is shown, but for
// words.
func eachBlockString(raw []byte, each func(blockString)) {
	whole := gjson.ParseBytes(raw)
	root, at := whole.Get("message"), "/message"
	if !root.IsObject() {
		root, at = whole, ""
	}
	for _, member := range []string{"content", "images", "files"} {
		list := root.Get(member)
		if !list.IsArray() {
			continue
		}
		i := -1
		list.ForEach(func(_, b gjson.Result) bool {
			i++
			if !b.IsObject() {
				return true
			}
			in := stray{path: at + "/" + member + "/" + strconv.Itoa(i), key: member, typ: b.Get("type").Str}
			if isWords(in.typ) {
				return true
			}
			if member == "content" {
				in.block = in.path
			}
			walkStrings(in, b, 0, each)
			return true
		})
	}
}

func walkStrings(in stray, v gjson.Result, depth int, each func(blockString)) {
	switch {
	case v.Type == gjson.String:
		if !isAddress(in.key) {
			each(blockString{in, v})
		}
	case depth < maxBlockDepth && (v.IsObject() || v.IsArray()):
		list, i := v.IsArray(), -1
		v.ForEach(func(key, below gjson.Result) bool {
			next := in
			if i++; list {
				next.path += "/" + strconv.Itoa(i)
			} else {
				next.key = key.String()
				next.path += "/" + strings.ReplaceAll(strings.ReplaceAll(next.key, "~", "~0"), "/", "~1")
			}
			walkStrings(next, below, depth+1, each)
			return true
		})
	}
}

// blobWords finds entries that may have a reference.
var blobWords = &wordSearch{words: []string{blobEnd}}

// strays lists the references in the blocks of an entry that was restored.
func strays(full entry.Entry) (list []stray) {
	if raw := full.Raw(); blobWords.next(raw) < len(raw) {
		eachBlockString(raw, func(s blockString) {
			if ref, err := blobref.Parse(s.value.Str); err == nil {
				s.ref = ref
				list = append(list, s.stray)
			}
		})
	}
	return list
}

// find reads what a stray is about.
func (s *Session) find(ctx context.Context, x *stray, limits ImageLimits) error {
	data, err := s.getBlob(ctx, x.ref)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch {
	case err != nil:
	case bytes.HasPrefix(data, []byte("data:")) && utf8.Valid(data):
		x.data = string(data)
	case x.key == "url" || x.key == "image_url":
		x.why = "it is no URL of data"
	default:
		x.data = base64.StdEncoding.EncodeToString(data)
	}
	_, encoded, _ := strings.Cut(x.data, ",") // of a data URL
	if why := limits.exceeded(entry.Image{Data: cmp.Or(encoded, x.data)}); why != "" {
		x.data, x.why = "", why+", which is more than model providers take"
	}
	return nil
}

// settled returns e with the data of strays in their places. With notes, those whose data
// cannot be had take their block with them, and a note stands in its place.
func settled(e entry.Entry, list []stray, notes bool) entry.Entry {
	type edit struct {
		from, to int
		text     []byte
	}
	raw := e.Raw()
	var edits []edit
	put := func(v gjson.Result, text []byte) {
		if n := len(edits); v.Index > 0 && (n == 0 || v.Index >= edits[n-1].to) {
			edits = append(edits, edit{v.Index, v.Index + len(v.Raw), text})
		}
	}
	gone := map[string]stray{} // by block
	for _, s := range list {
		if _, told := gone[s.block]; !told && s.data == "" && s.block != "" && notes {
			gone[s.block] = s
		}
	}
	eachBlockString(raw, func(at blockString) {
		if s, ok := gone[at.block]; ok {
			pointer := strings.Split(strings.TrimPrefix(at.block, "/"), "/")
			put(gjson.GetBytes(raw, strings.Join(pointer, ".")), noteBlock(s))
			return
		}
		for _, s := range list {
			if s.path == at.path && s.data != "" {
				put(at.value, ecmajson.AppendString(nil, s.data))
			}
		}
	})
	if len(edits) == 0 {
		return e
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	out, at := make([]byte, 0, len(raw)), 0
	for _, x := range edits {
		out = append(append(out, raw[at:x.from]...), x.text...)
		at = x.to
	}
	return entry.New(append(out, raw[at:]...), e.Envelope())
}

// noteBlock is the block that stands in the place of one whose data cannot be had.
func noteBlock(s stray) []byte {
	why := s.why
	if why == "" {
		why = "its data is missing"
	}
	note := fmt.Sprintf("[%s: %s; it was kept as %s]", s.name(), why, blobURL(s.ref.String()))
	return append(ecmajson.AppendString([]byte(`{"type":"text","text":`), note), '}')
}

// name is what a stray's block is called in a sentence.
func (s *stray) name() string {
	if s.typ == "" {
		return "data"
	}
	return fmt.Sprintf("%.40s", CleanTitle(s.typ))
}

// repair says what became of a stray.
func (s *stray) repair(e entry.Entry) entry.Repair {
	r := entry.Repair{Kind: entry.RepairBlob, EntryID: e.ID(), Offset: e.Offset()}
	switch {
	case s.data != "":
		r.Detail = fmt.Sprintf("%s stands at %s as it is, where programs look for data; its data stands there", blobURL(s.ref.String()), s.path)
	case s.why != "":
		r.Detail = fmt.Sprintf("%s cannot be sent from %s: %s; a note stands in its place", s.name(), blobURL(s.ref.String()), s.why)
	default:
		r.Detail = fmt.Sprintf("%s cannot be read from %s; a note stands in its place", s.name(), blobURL(s.ref.String()))
	}
	return r
}
