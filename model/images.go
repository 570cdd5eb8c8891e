package model

import (
	"encoding/base64"
	"fmt"
	"image"
	_ "image/gif" // what providers take as images
	_ "image/jpeg"
	_ "image/png"
	"io"
	"strings"

	_ "golang.org/x/image/webp"

	"github.com/agentrun/agentrun/session/entry"
)

// Resize makes an image smaller, so that it is within limits.
type Resize func(image entry.ImageBlock, limits ImageLimits) (entry.ImageBlock, error)

// FitImages returns messages whose images are within limits. Of more images than a
// request may have the oldest give way to a line that says so; one that is too large is
// made smaller by resize, or gives way too if that is nil or fails. What is within the
// limits stays as it is, and so does messages.
func FitImages(messages []entry.Message, limits ImageLimits, resize Resize) []entry.Message {
	count := 0
	for _, m := range messages {
		for _, b := range imagesOf(m).Blocks() {
			if _, ok := b.(entry.ImageBlock); ok {
				count++
			}
		}
	}
	if count == 0 || limits == (ImageLimits{}) {
		return messages
	}
	over := 0
	if limits.MaxCount > 0 {
		over = max(count-limits.MaxCount, 0)
	}
	fitted := messages
	for i, m := range messages {
		blocks, changed := fitBlocks(imagesOf(m).Blocks(), &over, limits, resize)
		if !changed {
			continue
		}
		if &fitted[0] == &messages[0] {
			fitted = append([]entry.Message(nil), messages...)
		}
		switch m := m.(type) {
		case entry.UserMessage:
			m.Content = entry.Blocks(blocks...)
			fitted[i] = m
		case entry.ToolResultMessage:
			m.Content = entry.Blocks(blocks...)
			fitted[i] = m
		}
	}
	return fitted
}

// imagesOf is the content of a message that may have images.
func imagesOf(m entry.Message) entry.Content {
	switch m := m.(type) {
	case entry.UserMessage:
		return m.Content
	case entry.ToolResultMessage:
		return m.Content
	}
	return entry.Content{}
}

func fitBlocks(blocks []entry.Block, over *int, limits ImageLimits, resize Resize) (fitted []entry.Block, changed bool) {
	for i, b := range blocks {
		img, ok := b.(entry.ImageBlock)
		if !ok {
			continue
		}
		var instead entry.Block
		if *over > 0 {
			*over--
			instead = leftOut(fmt.Sprintf("a request takes %d, and newer ones follow", limits.MaxCount))
		} else if why := tooLarge(img, limits); why != "" {
			instead = leftOut(why)
			if resize != nil {
				smaller, err := resize(img, limits)
				if err == nil && tooLarge(smaller, limits) == "" {
					instead = smaller
				}
			}
		}
		if instead == nil {
			continue
		}
		if !changed {
			fitted, changed = append([]entry.Block(nil), blocks...), true
		}
		fitted[i] = instead
	}
	return fitted, changed
}

// leftOut is what stands in the place of an image.
func leftOut(why string) entry.Block {
	return entry.TextBlock{Text: "[An image was left out here: " + why + ".]"}
}

// tooLarge says in what an image is beyond the limits, "" if it is not.
func tooLarge(img entry.ImageBlock, limits ImageLimits) string {
	if limits.MaxBytes > 0 && len(img.Data) > limits.MaxBytes {
		return fmt.Sprintf("it has %d bytes as base64, and the model takes %d", len(img.Data), limits.MaxBytes)
	}
	if limits.MaxEdge <= 0 || img.Data == "" {
		return ""
	}
	const head = 1 << 20 // in JPEG the size may stand behind a large profile
	data := base64.NewDecoder(base64.StdEncoding, strings.NewReader(img.Data))
	c, _, err := image.DecodeConfig(io.LimitReader(data, head))
	if err != nil {
		return "" // the provider will say
	}
	if edge := max(c.Width, c.Height); edge > limits.MaxEdge {
		return fmt.Sprintf("it is %d pixels long, and the model takes %d", edge, limits.MaxEdge)
	}
	return ""
}
