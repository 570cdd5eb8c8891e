package session

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

// someFolds are two blobs in three places of a log.
func someFolds() (t *folds, log string, store blobs) {
	a, b := strings.Repeat("a", minFold), strings.Repeat("b", minFold+1)
	log = "<" + a + b + "between" + a + ">"
	mem := memory.New(blobstore.Verified)
	store = blobs{store: mem, kept: mem}
	t = &folds{}
	for _, x := range []struct {
		text string
		at   []int64
	}{{a, []int64{1, int64(1 + len(a) + len(b) + len("between"))}}, {b, []int64{int64(1 + len(a))}}} {
		ref := blobref.Of([]byte(x.text))
		if err := mem.Set(context.Background(), ref, []byte(x.text)); err != nil {
			panic(err)
		}
		t.add(ref, &repeated{at: x.at, size: int64(len(x.text))})
	}
	t.sort()
	return t, log, store
}

func TestATableOfFoldsComesBackFromItsFrameAndFromTheMarks(t *testing.T) {
	table, log, store := someFolds()
	stream, err := io.ReadAll(table.streamReader(strings.NewReader(log)))
	if err != nil {
		t.Fatal(err)
	}
	frame, err := table.frame()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parseFolds(frame)
	if err != nil {
		t.Fatal(err)
	}
	src := source{bytes.NewReader(stream), int64(len(stream))}
	found, err := findFolds(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*folds{"frame": parsed, "marks": found} {
		u, err := unfold(src, got, store)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		back, err := readSpan(u, 0, u.size, nil)
		if err != nil || string(back) != log {
			t.Errorf("%s: %d bytes of %d, %v", name, len(back), len(log), err)
		}
	}
	if _, err := io.ReadAll(table.streamReader(strings.NewReader(log[:len(log)-10]))); err != errShortLog {
		t.Errorf("of a log that is cut: %v", err)
	}
	if at := table.logOffset(int64(len(stream) - 1)); at != int64(len(log)-1) {
		t.Errorf("the end is at %d of %d", at, len(log))
	}
}

// seal gives a table the lengths and the checksum that it must have.
func seal(body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, foldsFrame)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)+4))
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
}

func TestHostileTablesOfFoldsAreRefused(t *testing.T) {
	table, _, _ := someFolds()
	good, err := table.frame()
	if err != nil {
		t.Fatal(err)
	}
	uvarints := func(list ...uint64) (b []byte) {
		for _, v := range list {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	sum := make([]byte, 32)
	blob := func(size uint64) []byte { return append(bytes.Clone(sum), uvarints(size)...) }
	body := func(parts ...[]byte) []byte {
		return seal(bytes.Join(append([][]byte{[]byte(foldsMagic)}, parts...), nil))
	}
	for name, b := range map[string][]byte{
		"empty":                     {},
		"cut":                       good[:len(good)-1],
		"a flipped bit":             append(append(bytes.Clone(good[:30]), good[30]^1), good[31:]...),
		"another magic":             seal([]byte("agentrun folds 2")),
		"no frame at all":           append([]byte{1, 2, 3, 4}, good[4:]...),
		"more stretches than bytes": body(uvarints(1<<40, 0)),
		"more blobs than bytes":     body(uvarints(0, 1<<40)),
		"a blob that is too large":  body(uvarints(1, 1), blob(maxFold+1), uvarints(0, 0)),
		"a blob that is too small":  body(uvarints(1, 1), blob(1), uvarints(0, 0)),
		"no such blob":              body(uvarints(1, 1), blob(minFold), uvarints(0, 1)),
		"an offset that overflows":  body(uvarints(2, 1), blob(minFold), uvarints(1<<62, 0, 1<<62, 0)),
		"bytes behind it":           body(uvarints(1, 1), blob(minFold), uvarints(0, 0), sum),
	} {
		if got, err := parseFolds(b); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got, err := parseFolds(append([]byte{0x50, 0x2a, 0x4d, 0x18}, good[4:]...)); got != nil || err != nil {
		t.Errorf("a frame of somebody else: %v, %v", got, err)
	}
}

func FuzzFolds(f *testing.F) {
	table, log, store := someFolds()
	frame, err := table.frame()
	if err != nil {
		f.Fatal(err)
	}
	stream, err := io.ReadAll(table.streamReader(strings.NewReader(log)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(frame[skippableHead:len(frame)-4], stream)
	f.Add([]byte(foldsMagic), []byte("\x1ablob:sha256:"))
	f.Fuzz(func(t *testing.T, body, stream []byte) {
		src := source{bytes.NewReader(stream), int64(len(stream))}
		tables := []*folds{}
		if p, err := parseFolds(seal(body)); err == nil {
			again, err := p.frame()
			if err != nil {
				t.Fatal(err)
			}
			if q, err := parseFolds(again); err != nil || len(q.list) != len(p.list) {
				t.Fatalf("its own frame is refused: %v", err)
			}
			tables = append(tables, p)
		}
		found, err := findFolds(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range append(tables, found) {
			u, err := unfold(src, p, store)
			if err != nil {
				continue
			}
			if u.size < 0 {
				t.Fatalf("it has %d bytes", u.size)
			}
			n := min(u.size, 1<<20)
			for _, at := range []int64{0, u.size / 2, u.size - n} {
				if _, err := readSpan(u, at, min(at+n, u.size), nil); err != nil {
					t.Fatalf("%d bytes at %d of %d: %v", n, at, u.size, err)
				}
			}
		}
	})
}
