package persist

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Image is one image of an entry, for those who load images one by one.
type Image struct {
	Path     string      // JSON pointer to the string that holds the data
	MimeType string      // as the block or the data URL says; may be empty
	Ref      blobref.Ref // of the blob; zero if the image is in the line
	Inline   []byte      // base64 or a data URL, if the image is in the line

	url  bool // blob or Inline is a data URL
	text bool // the blob is the base64 text
}

// Images lists the images of an entry, prepared or not, in the order of its
// text: image blocks wherever they stand, results of image generation, data URLs
// under image_url. It reads no blob. An entry that is no valid JSON object has
// none.
func Images(entry []byte) iter.Seq[Image] { return standard.images(entry) }

// ImageAt returns the i-th image of [Images], counted from 0.
func ImageAt(entry []byte, i int) (Image, bool) {
	for img := range Images(entry) {
		if i == 0 {
			return img, true
		}
		i--
	}
	return Image{}, false
}

func (l limits) images(entry []byte) iter.Seq[Image] {
	return func(yield func(Image) bool) {
		// Every image block has a type, mimeType or key that begins so.
		if !bytes.Contains(entry, []byte("mage")) {
			return
		}
		known, ours := findList(entry)
		if !ours || !mayCite(entry) {
			known = list{}
		}
		text, known := unwrapped(entry, known)
		s := survey{limits: l, task: listing}
		if s.run(text, known.pointers()) != nil {
			return
		}
		sites := s.effective()
		for k, at := range sites {
			if at.kind != siteImage && at.kind != siteURL {
				continue
			}
			var it *item
			if k > 0 && sites[k-1].kind == siteItem && sites[k-1].span == at.span {
				it = &known.items[sites[k-1].item]
			}
			if img, ok := imageAt(text, at, it); ok && !yield(img) {
				return
			}
		}
	}
}

// imageAt describes the image at a site. The item, which may be nil, is the
// list's word on that string.
func imageAt(text []byte, at site, it *item) (Image, bool) {
	data, err := ecmajson.Unquote(at.of(text))
	if err != nil {
		return Image{}, false
	}
	img := Image{Path: string(at.path), url: at.kind == siteURL}
	if !at.mime.empty() {
		mime, _ := ecmajson.Unquote(at.mime.of(text))
		img.MimeType = string(mime)
	}
	ref, isRef := parseRef(at.of(text))
	switch {
	case it != nil && it.form == formBase64:
		img.Ref = it.ref
	case it != nil && it.form == formCut:
		img.Ref, img.text = it.ref, true
	case it == nil && isRef && at.resolved:
		img.Ref = ref
	default:
		img.Inline = data
		if img.url {
			img.MimeType = urlType(data)
		}
	}
	return img, true
}

// urlType is the media type that a data URL declares.
func urlType(url []byte) string {
	url = bytes.TrimPrefix(url, []byte("data:"))
	if i := bytes.IndexAny(url, ";,"); i >= 0 {
		return string(url[:i])
	}
	return ""
}

// Load returns the bytes of the image and its media type. They are not changed
// by anybody if they came from get, so the caller must not change them either.
func (img Image) Load(ctx context.Context, get Get) (data []byte, mimeType string, err error) {
	data = img.Inline
	if !img.Ref.IsZero() {
		if data, err = get(ctx, img.Ref); err != nil {
			return nil, "", fmt.Errorf("loading the image at %s: %w", img.Path, err)
		}
		if !img.url && !img.text {
			return data, img.MimeType, nil
		}
	}
	mimeType = img.MimeType
	if img.url {
		mimeType = urlType(data)
		_, data, _ = bytes.Cut(data, []byte(";base64,"))
	}
	out, err := decodeAny(data)
	if err != nil {
		return nil, "", fmt.Errorf("decoding the image at %s: %w", img.Path, err)
	}
	return out, mimeType, nil
}

// decodeAny decodes base64 in either alphabet, padded or not, on any number of lines.
func decodeAny(text []byte) ([]byte, error) {
	text = bytes.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		case '=', ' ', '\t', '\r', '\n':
			return -1
		}
		return r
	}, text)
	return base64.RawStdEncoding.AppendDecode(nil, text)
}
