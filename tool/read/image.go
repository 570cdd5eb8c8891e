package read

import (
	"bytes"
	"context"
	"fmt"
	"image"
	_ "image/gif"  // sizes of pictures
	_ "image/jpeg" // sizes of pictures
	_ "image/png"  // sizes of pictures
	"strings"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool"
)

// Limits of a picture that is shown to a model: what Anthropic's API takes, 5 MiB as base64 and
// 8,000 pixels a side, the least of the large providers.
const (
	MaxImageBytes = 5 << 20 / 4 * 3
	MaxImageSide  = 8000
)

// picture makes a page of a picture one that a model sees, where it may be.
func (t Tool) picture(ctx context.Context, p Page, target string) (text string, images []tool.Image, ok bool) {
	if !strings.HasPrefix(p.ContentType, "image/") || strings.Contains(target, ":raw") {
		return "", nil, false
	}
	about := fmt.Sprintf("%s of %s", p.ContentType, outputsink.FormatBytes(p.Size))
	if p.Size > MaxImageBytes {
		return fmt.Sprintf("[%s, more than the %s that a model is shown: make it smaller]", about, outputsink.FormatBytes(MaxImageBytes)), nil, true
	}
	whole, err := Read(ctx, t.Router, target, Options{Raw: true, MaxRaw: MaxImageBytes, Files: t.Files})
	if err != nil || int64(len(whole.Data)) != p.Size {
		return "", nil, false
	}
	if p.ContentType != "image/webp" {
		size, _, err := image.DecodeConfig(bytes.NewReader(whole.Data))
		if err != nil {
			return fmt.Sprintf("[%s, which is damaged: %v]", about, err), nil, true
		}
		about = fmt.Sprintf("%s, %d x %d pixels, %s", p.ContentType, size.Width, size.Height, outputsink.FormatBytes(p.Size))
		if size.Width > MaxImageSide || size.Height > MaxImageSide {
			return fmt.Sprintf("[%s, more than the %d pixels a side that a model is shown: make it smaller]", about, MaxImageSide), nil, true
		}
	}
	return "[" + about + "]", []tool.Image{{MIMEType: p.ContentType, Data: whole.Data}}, true
}
