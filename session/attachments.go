package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	stdimage "image"
	_ "image/gif" // the formats that providers take
	_ "image/jpeg"
	_ "image/png"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/tidwall/gjson"
	"golang.org/x/sync/errgroup"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// ImageLimits bound an image that is sent to a model.
type ImageLimits struct {
	Base64 int // characters of its base64
	Side   int // pixels of its width and of its height
}

// DefaultImageLimits are those of the Messages API of Anthropic, the narrowest in use:
// 5 MB, counted over the base64, and 8,000 pixels a side. A request with a larger
// image is refused, and so is every request after it that still holds it.
var DefaultImageLimits = ImageLimits{Base64: 5 << 20, Side: 8000}

func (l ImageLimits) orDefault() ImageLimits {
	return ImageLimits{Base64: cmp.Or(l.Base64, DefaultImageLimits.Base64), Side: cmp.Or(l.Side, DefaultImageLimits.Side)}
}

// attachments looks at what lies outside of the lines of a context.
type attachments struct {
	s       *Session
	limits  ImageLimits
	session string

	mu      sync.Mutex // guards the fields below
	changed map[int64]entry.Entry
	repairs []entry.Repair
}

// look reads the images and blobs of messages, several at once, and notes the entries in
// which a note has to stand instead.
func (a *attachments) look(ctx context.Context, messages []entry.ContextMessage) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxBlobReads)
	for _, m := range messages {
		if m.Synthetic {
			continue
		}
		if e := m.Entry(); !e.HasMedia() && blobWords.next(e.Raw()) == len(e.Raw()) {
			continue
		}
		g.Go(func() error { return a.one(ctx, m.Entry()) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	slices.SortFunc(a.repairs, func(x, y entry.Repair) int { return cmp.Compare(x.Offset, y.Offset) })
	return nil
}

// one looks at one entry.
func (a *attachments) one(ctx context.Context, e entry.Entry) error {
	full, missing, err := a.s.Restore(ctx, e)
	if err != nil {
		return err
	}
	notes := map[int]string{}
	var repairs []entry.Repair
	note := func(kind entry.RepairKind, detail string) {
		repairs = append(repairs, entry.Repair{Kind: kind, EntryID: e.ID(), Offset: e.Offset(), Detail: detail})
	}
	left, err := a.leftIn(ctx, full)
	if err != nil {
		return err
	}
	full = settled(full, left, false)
	stored := e.Images()
	for i, img := range full.Images() {
		switch {
		case img.IsRef():
			notes[i] = fmt.Sprintf("[%s: its data is missing; it was kept as %s]", imageName(img), blobURL(img.Data))
			note(entry.RepairBlob, fmt.Sprintf("%s cannot be read from %s; a note stands in its place", imageName(img), blobURL(img.Data)))
		default:
			why := a.limits.exceeded(img)
			if why == "" {
				continue
			}
			kept := "session://" + a.session + "/" + e.ID()
			if i < len(stored) && stored[i].IsRef() {
				kept = blobURL(stored[i].Data)
			}
			notes[i] = fmt.Sprintf("[%s of %s, which is more than model providers take; it is kept as %s]", imageName(img), why, kept)
			note(entry.RepairImage, fmt.Sprintf("%s of %s is more than providers take; a note with %s stands in its place", imageName(img), why, kept))
		}
	}
	for _, x := range left {
		repairs = append(repairs, x.repair(e))
	}
	var gone []string // items of strings that are cut for good
	for _, m := range missing {
		if slices.ContainsFunc(left, func(x stray) bool { return x.path == m.Path }) {
			continue
		}
		if !shown(m.Path) || errors.Is(m.Err, persist.ErrChanged) || strings.HasSuffix(m.Path, "/data") {
			continue
		}
		gone = append(gone, m.Path)
		note(entry.RepairBlob, fmt.Sprintf("the whole text at %s cannot be read from %s; its beginning stands in its place", m.Path, blobURL(m.Ref.String())))
	}
	if len(repairs) == 0 {
		return nil
	}
	x := settled(e, left, false)
	if len(notes) > 0 {
		x = x.ReplaceImages(notes) // other images may have other places then
	}
	x = settled(x, slices.DeleteFunc(slices.Clone(left), func(s stray) bool { return s.data != "" }), true)
	x = withoutItems(x, func(path string) bool { return slices.Contains(gone, path) || !pointsAtString(x.Raw(), path) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil {
		a.changed = map[int64]entry.Entry{}
	}
	a.changed[e.Offset()] = x
	a.repairs = append(a.repairs, repairs...)
	return nil
}

// leftIn lists the strays of an entry that was restored, with what belongs in their
// places. Images that entries know are told as such when they are missing.
func (a *attachments) leftIn(ctx context.Context, full entry.Entry) ([]stray, error) {
	list := strays(full)
	for i := range list {
		if err := a.s.find(ctx, &list[i], a.limits); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(list, func(x stray) bool { return isImagePlace(x) && x.data == "" }), nil
}

// isImagePlace reports whether a stray is where the data of an image is looked for.
func isImagePlace(x stray) bool {
	in := strings.Split(strings.TrimPrefix(strings.TrimPrefix(x.path, "/message"), "/"), "/")
	switch in[0] {
	case "content":
		return x.typ == entry.BlockImage && len(in) == 3 && in[2] == "data"
	case "images":
		return len(in) == 3 && in[2] == "data"
	}
	return len(in) == 4 && in[2] == "image" && in[3] == "data"
}

// shown reports whether a model is shown what lies at a JSON pointer of an entry. The
// details of a message are for programs.
func shown(pointer string) bool {
	for _, member := range []string{"/message/content", "/message/output", "/message/code", "/message/files", "/content", "/summary"} {
		if pointer == member || strings.HasPrefix(pointer, member+"/") {
			return true
		}
	}
	return false
}

func imageName(i entry.Image) string {
	if i.MIMEType == "" {
		return "image"
	}
	return fmt.Sprintf("image (%.40s)", CleanTitle(i.MIMEType))
}

// blobURL is the URL of a reference in a line.
func blobURL(ref string) string { return "blob://sha256/" + strings.TrimPrefix(ref, blobref.Prefix) }

// exceeded words what about an image is too large, "" if nothing is.
func (l ImageLimits) exceeded(i entry.Image) string {
	width, height := size(i.Data)
	switch {
	case width > l.Side || height > l.Side:
		return fmt.Sprintf("%d x %d pixels", width, height)
	case len(i.Data) > l.Base64:
		return fmt.Sprintf("%.1f MB", float64(len(i.Data))/(1<<20))
	}
	return ""
}

// size returns the pixels of an image that is given as base64, 0 when its beginning does
// not tell.
func size(data string) (width, height int) {
	from := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	head := make([]byte, webpHead)
	n, _ := io.ReadFull(from, head)
	if width, height, ok := webpSize(head[:n]); ok {
		return width, height
	}
	c, _, err := stdimage.DecodeConfig(io.MultiReader(bytes.NewReader(head[:n]), from))
	if err != nil {
		return 0, 0
	}
	return c.Width, c.Height
}

// webpHead is how much of a WebP file tells its size in each of its three forms.
const webpHead = 30

// webpSize reads the size of a WebP image (RFC 9649, sections 2.5 to 2.7). The standard
// library does not know the format.
func webpSize(b []byte) (width, height int, ok bool) {
	if len(b) < webpHead || string(b[:4]) != "RIFF" || string(b[8:12]) != "WEBP" {
		return 0, 0, false
	}
	le := func(at, bytes int) int {
		v := 0
		for i := bytes - 1; i >= 0; i-- {
			v = v<<8 | int(b[at+i])
		}
		return v
	}
	switch string(b[12:16]) {
	case "VP8 ":
		return le(26, 2) & 0x3fff, le(28, 2) & 0x3fff, true
	case "VP8L":
		bits := le(21, 4)
		return bits&0x3fff + 1, bits>>14&0x3fff + 1, true
	case "VP8X":
		return le(24, 3) + 1, le(27, 3) + 1, true
	}
	return 0, 0, false
}

// pointsAtString reports whether a JSON pointer leads to a string of the entry.
func pointsAtString(raw []byte, pointer string) bool {
	at := gjson.ParseBytes(raw)
	for _, token := range strings.Split(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		next := gjson.Result{}
		i := 0
		at.ForEach(func(key, value gjson.Result) bool {
			name := key.String()
			if at.IsArray() {
				name = fmt.Sprint(i)
				i++
			}
			if name == token {
				next = value
				return false
			}
			return true
		})
		at = next
	}
	return at.Type == gjson.String
}

// withoutItems returns e without the items of its list of strings kept elsewhere for
// which drop holds.
func withoutItems(e entry.Entry, drop func(path string) bool) entry.Entry {
	raw := e.Raw()
	list := gjson.GetBytes(raw, "externalized")
	if !list.IsArray() {
		return e
	}
	var kept [][]byte
	dropped := false
	list.ForEach(func(_, item gjson.Result) bool {
		if path := item.Get("path"); path.Type == gjson.String && drop(path.Str) {
			dropped = true
		} else {
			kept = append(kept, []byte(item.Raw))
		}
		return true
	})
	if !dropped {
		return e
	}
	out := slices.Concat(raw[:list.Index+1], bytes.Join(kept, []byte(",")), raw[list.Index+len(list.Raw)-1:])
	return entry.New(out, e.Envelope())
}
