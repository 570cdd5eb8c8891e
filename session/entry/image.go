package entry

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Image is an image as it stands in a message.
type Image struct {
	Data     string // base64, or a reference into the blob store
	MIMEType string
}

// refPrefix begins a reference, which no base64 does.
const refPrefix = "blob:sha256:"

// IsRef reports whether Data is a reference: the image lies in the blob store and
// has not been put back. It must not be sent to a model as if it were base64.
func (i Image) IsRef() bool { return strings.HasPrefix(i.Data, refPrefix) }

// Images returns the images of the message that the entry contributes to a
// context, in their order: image blocks of its content, images of an execution,
// and images of mentioned files. Those in details are not meant for a model.
func (e Entry) Images() []Image {
	if !mentions(e.raw, "mimeType") && !mentions(e.raw, BlockImage) {
		return nil
	}
	var m gjson.Result
	switch e.typ {
	case TypeMessage:
		m = e.message()
	case TypeCustomMessage:
		m = gjson.Parse(text(e.raw))
	}
	var images []Image
	add := func(b gjson.Result) {
		if data := b.Get("data"); data.Type == gjson.String {
			images = append(images, Image{Data: data.Str, MIMEType: str(b.Get("mimeType"))})
		}
	}
	for b := range elements(m.Get("content")) {
		if str(b.Get("type")) == BlockImage {
			add(b)
		}
	}
	for b := range elements(m.Get("images")) {
		add(b)
	}
	for f := range elements(m.Get("files")) {
		add(f.Get("image"))
	}
	return images
}

// Images returns the images of the message: see [Entry.Images].
func (m ContextMessage) Images() []Image {
	if m.Synthetic {
		return nil
	}
	return m.entry.Images()
}

// ReplaceImages returns the entry with notes in the place of some of its images. A note
// goes by the index of its image, as Images counts: it becomes a text block in content,
// and is added to the output of an execution or the content of a mentioned file.
// Everything else stays as it is, to the byte; an image that has no such place stays too.
func (e Entry) ReplaceImages(notes map[int]string) Entry {
	m := e.message()
	if e.typ != TypeMessage {
		m = gjson.Parse(text(e.raw))
	}
	r := replacement{raw: e.raw, notes: notes}
	for b := range elements(m.Get("content")) {
		if note, ok := r.next(b, str(b.Get("type")) == BlockImage); ok {
			r.put(b, append(ecmajson.AppendString([]byte(`{"type":"text","text":`), note), '}'))
		}
	}
	var kept []byte
	var said string
	images := m.Get("images")
	for b := range elements(images) {
		if note, ok := r.next(b, true); ok {
			said += "\n" + note
			continue
		}
		if len(kept) > 0 {
			kept = append(kept, ',')
		}
		kept = append(kept, b.Raw...)
	}
	if output := m.Get("output"); said != "" && output.Type == gjson.String {
		r.put(images, append(append([]byte{'['}, kept...), ']'))
		r.put(output, ecmajson.AppendString(nil, output.Str+said))
	}
	for f := range elements(m.Get("files")) {
		content, image := f.Get("content"), f.Get("image")
		if note, ok := r.next(image, true); ok && content.Type == gjson.String {
			r.put(image, []byte("null"))
			r.put(content, ecmajson.AppendString(nil, content.Str+"\n"+note))
		}
	}
	return New(r.apply(), e.Envelope())
}

// replacement is an entry some of whose images are being replaced.
type replacement struct {
	raw   []byte
	notes map[int]string
	count int // of images so far
	edits []edit
}

// edit puts text in the place of raw[from:to].
type edit struct {
	from, to int
	text     []byte
}

// next counts b if it is an image, and returns the note that replaces it.
func (r *replacement) next(b gjson.Result, image bool) (string, bool) {
	if !image || b.Get("data").Type != gjson.String {
		return "", false
	}
	note, ok := r.notes[r.count]
	r.count++
	return note, ok
}

func (r *replacement) put(old gjson.Result, text []byte) {
	r.edits = append(r.edits, edit{old.Index, old.Index + len(old.Raw), text})
}

func (r *replacement) apply() []byte {
	slices.SortFunc(r.edits, func(a, b edit) int { return cmp.Compare(a.from, b.from) })
	out := make([]byte, 0, len(r.raw))
	at := 0
	for _, x := range r.edits {
		out = append(append(out, r.raw[at:x.from]...), x.text...)
		at = x.to
	}
	return append(out, r.raw[at:]...)
}
