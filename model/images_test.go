package model_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"image"
	"image/png"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

func picture(t *testing.T, width int) entry.ImageBlock {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 1))); err != nil {
		t.Fatal(err)
	}
	return entry.ImageBlock{Data: base64.StdEncoding.EncodeToString(b.Bytes()), MIMEType: "image/png"}
}

func TestImagesAreMadeToFitOrGiveWay(t *testing.T) {
	small, wide := picture(t, 10), picture(t, 5000)
	damaged := entry.ImageBlock{Data: "!!!", MIMEType: "image/png"}
	shrunk := func(entry.ImageBlock, model.ImageLimits) (entry.ImageBlock, error) { return picture(t, 20), nil }
	fails := func(entry.ImageBlock, model.ImageLimits) (entry.ImageBlock, error) {
		return entry.ImageBlock{}, errors.New("no")
	}
	for name, c := range map[string]struct {
		images []entry.ImageBlock
		limits model.ImageLimits
		resize model.Resize
		want   string // i an image as it was, s a smaller one, else the reason
	}{
		"within limits":          {[]entry.ImageBlock{small, small}, model.ImageLimits{MaxCount: 2, MaxEdge: 10, MaxBytes: 1000}, fails, "ii"},
		"without limits":         {[]entry.ImageBlock{wide}, model.ImageLimits{}, fails, "i"},
		"too many: oldest first": {[]entry.ImageBlock{small, small, small}, model.ImageLimits{MaxCount: 1}, nil, "takes 1;takes 1;i"},
		"too long":               {[]entry.ImageBlock{wide, small}, model.ImageLimits{MaxEdge: 100}, nil, "it is 5000 pixels long, and the model takes 100;i"},
		"too long, made smaller": {[]entry.ImageBlock{wide, small}, model.ImageLimits{MaxEdge: 100}, shrunk, "si"},
		"too large":              {[]entry.ImageBlock{small}, model.ImageLimits{MaxBytes: 10}, fails, "bytes as base64, and the model takes 10;"},
		"not small enough":       {[]entry.ImageBlock{wide}, model.ImageLimits{MaxEdge: 10}, shrunk, "5000 pixels;"},
		"damaged is not ours":    {[]entry.ImageBlock{damaged}, model.ImageLimits{MaxEdge: 10}, nil, "i"},
	} {
		var messages []entry.Message
		for _, i := range c.images {
			messages = append(messages, entry.UserMessage{Content: entry.Blocks(entry.TextBlock{Text: "look"}, i)})
		}
		fitted := model.FitImages(messages, c.limits, c.resize)
		var got strings.Builder
		for i, m := range fitted {
			switch b := m.(entry.UserMessage).Content.Blocks()[1].(type) {
			case entry.ImageBlock:
				got.WriteString(map[bool]string{true: "i", false: "s"}[b.Data == c.images[i].Data])
			case entry.TextBlock:
				got.WriteString(b.Text + ";")
			}
			if messages[i].(entry.UserMessage).Content.Blocks()[1].(entry.ImageBlock).Data != c.images[i].Data {
				t.Errorf("%s: the request was changed", name)
			}
		}
		for _, part := range strings.Split(c.want, ";") {
			if !strings.Contains(got.String(), part) {
				t.Errorf("%s: %s", name, got.String())
			}
		}
	}
}
