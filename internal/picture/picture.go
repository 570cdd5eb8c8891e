// Package picture makes pictures such as models are given: PNG, JPEG, GIF and WebP within the
// limits of the providers.
//
// A picture within the limits is given as it is, when it can be decoded to its end: a
// provider refuses a request with a damaged one, and every request after it. A larger one
// is made smaller, with its proportions and upright. One whose header promises more than
// [MaxPixels] is refused before anything is decoded.
//
// Memory is bounded by MaxPixels, and one picture is decoded at a time. All functions are
// safe for concurrent use.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

// Limits of a picture that is shown to a model. Anthropic's API ("Vision", Image size) takes
// 5 MB of base64 and 8,000 pixels a side, and scales down what is longer than 1,568 pixels on
// its long edge; other large providers take more.
const (
	MaxSide  = 1568
	MaxBytes = 5_000_000 / 4 * 3
)

// Limits of what is looked at.
const (
	// MaxFile is the largest picture, in bytes.
	MaxFile = 64 << 20
	// MaxPixels bounds what decoding needs: eight bytes a pixel at most.
	MaxPixels = 50_000_000
)

// ErrTooLarge is returned for pictures above MaxFile or MaxPixels.
var ErrTooLarge = errors.New("it is too large to be shown")

// Picture is a picture within the limits.
type Picture struct {
	MIMEType      string
	Data          []byte
	Width, Height int
	// Was is how large the picture is that this one was made of. It is the same size when it
	// was left as it is, and Made is not set.
	Was  image.Point
	Made bool
}

// one decodes at a time.
var one = make(chan struct{}, 1)

// formats by MIME type.
var formats = map[string]struct {
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
}{
	"image/png":  {png.DecodeConfig, png.Decode},
	"image/jpeg": {jpeg.DecodeConfig, jpeg.Decode},
	"image/gif":  {gif.DecodeConfig, gif.Decode},
	"image/webp": {webp.DecodeConfig, webp.Decode},
}

// Takes reports whether pictures of a MIME type can be shown.
func Takes(mimeType string) bool {
	_, ok := formats[mimeType]
	return ok
}

// Fit returns a picture of that MIME type as a model is given it.
func Fit(data []byte, mimeType string) (p Picture, err error) {
	format, ok := formats[mimeType]
	if !ok {
		return Picture{}, fmt.Errorf("%s is no picture that models are shown: convert it to PNG or JPEG", mimeType)
	}
	if len(data) > MaxFile {
		return Picture{}, fmt.Errorf("it has more than 64 MiB: %w", ErrTooLarge)
	}
	size, err := format.config(bytes.NewReader(data))
	if err != nil {
		return Picture{}, fmt.Errorf("it is damaged: %w", err)
	}
	if size.Width <= 0 || size.Height <= 0 || size.Width > MaxPixels/size.Height {
		return Picture{}, fmt.Errorf("its header says %d x %d pixels, and %d million in all are the most: %w", size.Width, size.Height, MaxPixels/1_000_000, ErrTooLarge)
	}
	one <- struct{}{}
	defer func() { <-one }()
	defer func() {
		if r := recover(); r != nil { // a decoder met what it was not made for
			p, err = Picture{}, fmt.Errorf("it is damaged: %v", r)
		}
	}()
	img, err := format.decode(bytes.NewReader(data))
	if err != nil {
		return Picture{}, fmt.Errorf("it is damaged: %w", err)
	}
	turn := 1
	if mimeType == "image/jpeg" {
		turn = orientation(data)
	}
	was := upright(image.Pt(size.Width, size.Height), turn)
	if max(was.X, was.Y) <= MaxSide && len(data) <= MaxBytes {
		return Picture{mimeType, data, was.X, was.Y, was, false}, nil
	}
	for side := MaxSide; side >= 64; side = side * 3 / 4 {
		small := rotate(shrink(img, side), turn)
		out, typ, err := encode(small, mimeType)
		if err != nil {
			return Picture{}, err
		}
		if len(out) <= MaxBytes {
			b := small.Bounds()
			return Picture{typ, out, b.Dx(), b.Dy(), was, true}, nil
		}
	}
	return Picture{}, ErrTooLarge
}

// encode writes a photograph as JPEG and everything else as PNG, if that is small enough.
func encode(img *image.RGBA, mimeType string) ([]byte, string, error) {
	var out bytes.Buffer
	opaque := img.Opaque()
	if mimeType != "image/jpeg" && (mimeType != "image/webp" || !opaque) {
		enc := png.Encoder{CompressionLevel: png.DefaultCompression}
		if err := enc.Encode(&out, img); err != nil {
			return nil, "", fmt.Errorf("making it smaller: %w", err)
		}
		if out.Len() <= MaxBytes || !opaque {
			return out.Bytes(), "image/png", nil
		}
		out.Reset()
	}
	if err := jpeg.Encode(&out, img, &jpeg.Options{Quality: 85}); err != nil {
		return nil, "", fmt.Errorf("making it smaller: %w", err)
	}
	return out.Bytes(), "image/jpeg", nil
}
