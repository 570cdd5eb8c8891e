package picture

import (
	"image"

	"golang.org/x/image/draw"
)

// band is how many rows are converted at once.
const band = 64

// shrink makes a picture smaller, so that its long edge has at most side pixels: each pixel is
// the mean of those it stands for. The kernels of x/image/draw take 32 bytes for each column of
// the result and each row of the source, which is hundreds of megabytes.
func shrink(src image.Image, side int) *image.RGBA {
	b := src.Bounds()
	w, h := b.Dx(), b.Dy()
	dw, dh := w, h
	if long := max(w, h); long > side {
		dw, dh = max(1, w*side/long), max(1, h*side/long)
	}
	out := image.NewRGBA(image.Rect(0, 0, dw, dh))
	rows := image.NewRGBA(image.Rect(0, 0, w, min(band, h)))
	sum := make([]uint64, 4*dw)
	// Coverage is counted in parts of a pixel: a source pixel is dw by dh of them, and one of
	// the result w by h.
	y, left := 0, h
	for top := 0; top < h; top += band {
		n := min(band, h-top)
		draw.Draw(rows, image.Rect(0, 0, w, n), src, image.Pt(b.Min.X, b.Min.Y+top), draw.Src)
		for r := range n {
			line := rows.Pix[r*rows.Stride : r*rows.Stride+4*w]
			for have := dh; have > 0; {
				part := min(have, left)
				addRow(sum, line, w, dw, uint64(part))
				have -= part
				if left -= part; left == 0 {
					finish(out.Pix[y*out.Stride:y*out.Stride+4*dw], sum, uint64(w)*uint64(h))
					y, left = y+1, h
				}
			}
		}
	}
	return out
}

// addRow adds a row of the source to the sums of a row of the result.
func addRow(sum []uint64, line []uint8, w, dw int, weight uint64) {
	x, left := 0, w
	for i := 0; i < 4*w; i += 4 {
		for have := dw; have > 0; {
			part := min(have, left)
			f := weight * uint64(part)
			sum[4*x] += f * uint64(line[i])
			sum[4*x+1] += f * uint64(line[i+1])
			sum[4*x+2] += f * uint64(line[i+2])
			sum[4*x+3] += f * uint64(line[i+3])
			have -= part
			if left -= part; left == 0 {
				x, left = x+1, w
			}
		}
	}
}

func finish(row []uint8, sum []uint64, area uint64) {
	for i, s := range sum {
		row[i] = uint8((s + area/2) / area)
		sum[i] = 0
	}
}
