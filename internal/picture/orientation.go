package picture

import (
	"bytes"
	"encoding/binary"
	"image"
)

// orientation is how a JPEG is to be turned, by its Exif (tag 0x0112 of TIFF 6.0): 1 to 8, and 1
// for what has none. Providers do not look at it, and a picture that is made anew has no Exif.
func orientation(data []byte) int {
	for at := 2; at+4 <= len(data) && data[at] == 0xff; {
		marker, size := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if marker == 0xda || size < 2 || at+2+size > len(data) {
			return 1
		}
		if body := data[at+4 : at+2+size]; marker == 0xe1 && bytes.HasPrefix(body, []byte("Exif\x00\x00")) {
			return tiffOrientation(body[6:])
		}
		at += 2 + size
	}
	return 1
}

func tiffOrientation(b []byte) int {
	if len(b) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.BigEndian
	if b[0] == 'I' {
		order = binary.LittleEndian
	}
	at := int64(order.Uint32(b[4:]))
	if at+2 > int64(len(b)) {
		return 1
	}
	n := int64(order.Uint16(b[at:]))
	for i := range n {
		e := at + 2 + 12*i
		if e+12 > int64(len(b)) {
			return 1
		}
		if order.Uint16(b[e:]) == 0x0112 {
			if v := int(order.Uint16(b[e+8:])); v >= 1 && v <= 8 {
				return v
			}
			return 1
		}
	}
	return 1
}

// upright is the size of a picture once it is turned.
func upright(size image.Point, turn int) image.Point {
	if turn >= 5 {
		return image.Pt(size.Y, size.X)
	}
	return size
}

// rotate turns a picture as its orientation says.
func rotate(src *image.RGBA, turn int) *image.RGBA {
	if turn == 1 {
		return src
	}
	w, h := src.Rect.Dx(), src.Rect.Dy()
	size := upright(image.Pt(w, h), turn)
	out := image.NewRGBA(image.Rect(0, 0, size.X, size.Y))
	for y := range h {
		for x := range w {
			to := [...]image.Point{
				2: {w - 1 - x, y}, 3: {w - 1 - x, h - 1 - y}, 4: {x, h - 1 - y},
				5: {y, x}, 6: {h - 1 - y, x}, 7: {h - 1 - y, w - 1 - x}, 8: {y, w - 1 - x},
			}[turn]
			copy(out.Pix[out.PixOffset(to.X, to.Y):][:4], src.Pix[src.PixOffset(x, y):][:4])
		}
	}
	return out
}
