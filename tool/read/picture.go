package read

import (
	"context"
	"fmt"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
)

// picture makes a page that is a picture.
func (s *selection) picture(ctx context.Context, opt Options) error {
	s.rendered = true
	about := fmt.Sprintf("%s of %s", s.res.ContentType, outputsink.FormatBytes(s.size))
	data, err := load(ctx, s.res, picture.MaxFile)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var image tool.Image
	var note string
	if err == nil {
		image, note, err = show(ctx, opt, data, s.res.ContentType)
	}
	if err != nil {
		note = about + ", which cannot be shown: " + err.Error()
	} else {
		if s.ref != "" {
			image.Original = s.ref
		}
		s.pictures = []placed{{0, image}}
		note = fmt.Sprintf("%s, %s", s.res.ContentType, note)
	}
	s.only = note
	return nil
}

// placed is a picture and the line that names it.
type placed struct {
	line  int64
	image tool.Image
}

// show makes a picture fit for a model, keeps what it was, and tells about both.
func show(ctx context.Context, opt Options, data []byte, mimeType string) (tool.Image, string, error) {
	p, err := picture.Fit(data, mimeType)
	if err != nil {
		return tool.Image{}, "", err
	}
	image := tool.Image{MIMEType: p.MIMEType, Data: p.Data}
	note := fmt.Sprintf("%d x %d pixels, %s", p.Was.X, p.Was.Y, outputsink.FormatBytes(int64(len(data))))
	if !p.Made {
		return image, note, nil
	}
	note += fmt.Sprintf(", shown as %s with %d x %d", p.MIMEType, p.Width, p.Height)
	if opt.Blobs != nil {
		ref, err := blobstore.Put(ctx, opt.Blobs, data)
		if err != nil {
			note += fmt.Sprintf("; the original could not be kept: %v", err)
		} else {
			image.Original = ref.String()
			note += "; the original is blob://sha256/" + ref.Hex()
		}
	}
	return image, note, nil
}
