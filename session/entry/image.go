package entry

import (
	"strings"

	"github.com/tidwall/gjson"
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
