package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"testing"
)

func pngOf(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func jpegOf(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// turned is a JPEG whose Exif says how it is to be turned.
func turned(data []byte, how uint16) []byte {
	exif := append([]byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01"), 0x01, 0x12, 0, 3, 0, 0, 0, 1)
	exif = append(binary.BigEndian.AppendUint16(exif, how), 0, 0, 0, 0, 0, 0)
	head := binary.BigEndian.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe1}, uint16(len(exif)+2))
	return append(append(head, exif...), data[2:]...)
}

func noise(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 1))
	for i := range img.Pix {
		img.Pix[i] = byte(r.IntN(256)) | byte(0xff*(i%4/3))
	}
	return img
}

func TestAPictureWithinTheLimitsIsLeftAsItIs(t *testing.T) {
	var g bytes.Buffer
	if err := gif.Encode(&g, image.NewPaletted(image.Rect(0, 0, 30, 20), color.Palette{color.Black, color.White}), nil); err != nil {
		t.Fatal(err)
	}
	for typ, data := range map[string][]byte{
		"image/png": pngOf(t, image.NewGray(image.Rect(0, 0, 30, 20))), "image/gif": g.Bytes(),
		"image/jpeg": jpegOf(t, image.NewGray(image.Rect(0, 0, 30, 20))),
		"image/webp": []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"),
	} {
		p, err := Fit(data, typ)
		if err != nil || p.Made || p.MIMEType != typ || !bytes.Equal(p.Data, data) || p.Was != image.Pt(p.Width, p.Height) || typ != "image/webp" && p.Width != 30 {
			t.Errorf("%s: %d x %d, %v, %v", typ, p.Width, p.Height, p.Was, err)
		}
	}
}

func TestALargePictureIsMadeSmallerWithItsProportions(t *testing.T) {
	if testing.Short() {
		t.Skip("computes millions of pixels; run without -short")
	}
	for _, c := range []struct {
		name, typ, made string
		data            []byte
		w, h            int
	}{
		{"a wide one", "image/png", "image/png", pngOf(t, image.NewGray(image.Rect(0, 0, 3200, 100))), 1568, 49},
		{"a high one", "image/jpeg", "image/jpeg", jpegOf(t, image.NewGray(image.Rect(0, 0, 10, 2000))), 7, 1568},
		{"a flat one", "image/png", "image/png", pngOf(t, image.NewGray(image.Rect(0, 0, 20000, 1))), 1568, 1},
		{"one of many bytes", "image/png", "image/jpeg", pngOf(t, noise(1500, 1400)), 1500, 1400},
		{"one that lies on its side", "image/jpeg", "image/jpeg", turned(jpegOf(t, image.NewGray(image.Rect(0, 0, 3136, 100))), 6), 50, 1568},
	} {
		p, err := Fit(c.data, c.typ)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		cfg, format, err := image.DecodeConfig(bytes.NewReader(p.Data))
		if err != nil || !p.Made || len(p.Data) > MaxBytes || p.MIMEType != c.made || "image/"+format != c.made ||
			cfg.Width != p.Width || cfg.Height != p.Height || p.Width != c.w || p.Height != c.h {
			t.Errorf("%s: %s %s, %d x %d, %d bytes, %v", c.name, p.MIMEType, format, p.Width, p.Height, len(p.Data), err)
		}
	}
}

func TestSmallerPicturesHaveTheColoursOfTheLargeOnes(t *testing.T) {
	img := image.NewRGBA(image.Rect(0, 0, 400, 300))
	for y := range 300 {
		for x := range 400 {
			img.Set(x, y, color.RGBA{byte(255 * (x / 200)), byte(255 * (y / 150)), byte(255 * ((x + y) % 2)), 255})
		}
	}
	small := shrink(img, 40)
	for _, c := range []struct {
		x, y int
		want color.RGBA
	}{{0, 0, color.RGBA{0, 0, 128, 255}}, {39, 0, color.RGBA{255, 0, 128, 255}}, {0, 29, color.RGBA{0, 255, 128, 255}}, {39, 29, color.RGBA{255, 255, 128, 255}}} {
		if got := small.RGBAAt(c.x, c.y); got != c.want {
			t.Errorf("%d, %d: %v, want %v", c.x, c.y, got, c.want)
		}
	}
	if whole := shrink(img, 400); !bytes.Equal(whole.Pix, img.Pix) {
		t.Error("a picture that is small enough changed")
	}
}

func TestPicturesAreTurnedAsTheyAreToBeSeen(t *testing.T) {
	src := image.NewRGBA(image.Rect(0, 0, 3, 2))
	src.Set(0, 0, color.White) // the corner that camera saw first
	for turn, want := range map[int]image.Point{1: {0, 0}, 2: {2, 0}, 3: {2, 1}, 4: {0, 1}, 5: {0, 0}, 6: {1, 0}, 7: {1, 2}, 8: {0, 2}} {
		if got := rotate(src, turn).RGBAAt(want.X, want.Y); got.R != 255 {
			t.Errorf("orientation %d: nothing at %v", turn, want)
		}
	}
}

// bomb is a PNG whose header promises more than there is.
func bomb(t *testing.T) []byte {
	data := pngOf(t, image.NewGray(image.Rect(0, 0, 1, 1)))
	binary.BigEndian.PutUint32(data[16:], 50_000)
	binary.BigEndian.PutUint32(data[20:], 50_000)
	crc := crc32.ChecksumIEEE(data[12:29])
	binary.BigEndian.PutUint32(data[29:], crc)
	return data
}

func TestABombIsRefusedByItsHeader(t *testing.T) {
	data := bomb(t)
	if allocated := testing.AllocsPerRun(1, func() {
		if _, err := Fit(data, "image/png"); !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
	}); allocated > 100 {
		t.Errorf("%v allocations", allocated)
	}
}

func TestDamageIsToldAsDamage(t *testing.T) {
	whole := pngOf(t, noise(50, 50))
	for name, data := range map[string][]byte{"cut": whole[:len(whole)/2], "nothing": nil, "text": []byte("hello")} {
		if p, err := Fit(data, "image/png"); err == nil {
			t.Errorf("%s: %d x %d", name, p.Width, p.Height)
		}
	}
	if _, err := Fit(whole, "image/tiff"); err == nil {
		t.Error("TIFF was taken")
	}
}

func FuzzFit(f *testing.F) {
	f.Add(pngOf(f, noise(8, 8)), uint8(0))
	f.Add(turned(jpegOf(f, noise(8, 8)), 6), uint8(1))
	types := []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8) {
		p, err := Fit(data, types[int(kind)%len(types)])
		if err == nil && (len(p.Data) > MaxBytes || max(p.Width, p.Height) > MaxSide || p.Width < 1 || p.Height < 1) {
			t.Errorf("%d bytes, %d x %d", len(p.Data), p.Width, p.Height)
		}
	})
}
