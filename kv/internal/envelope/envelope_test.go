package envelope_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/kv/internal/envelope"
)

const limit = 1 << 20

func batchOf(flags byte, messages ...[]byte) []byte {
	var batch []byte
	for _, m := range messages {
		batch = append(envelope.AppendHeader(batch, flags, len(m)), m...)
	}
	return batch
}

func TestMessagesComeBackHoweverTheBytesAreCut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 5, 1000, 64<<10 - 5, 64 << 10, 64<<10 + 1, 300 << 10, limit}), 0, 6).Draw(t, "sizes")
		var messages [][]byte
		for i, n := range sizes {
			messages = append(messages, bytes.Repeat([]byte{byte(i + 1)}, n))
		}
		batch := batchOf(envelope.Compressed, messages...)
		i := 0
		for m := range envelope.Split(batch) {
			if !bytes.Equal(m, messages[i]) {
				t.Fatalf("Split: message %d has %d bytes, want %d", i, len(m), len(messages[i]))
			}
			i++
		}
		var in io.Reader = bytes.NewReader(batch)
		if rapid.Bool().Draw(t, "halves") {
			in = iotest.HalfReader(in)
		}
		r := envelope.NewReader(in, limit)
		for i, want := range messages {
			flags, got, err := r.Next()
			if err != nil || flags != envelope.Compressed || !bytes.Equal(got, want) {
				t.Fatalf("message %d: flags %d, %d bytes, %v; want %d bytes", i, flags, len(got), err, len(want))
			}
		}
		if _, _, err := r.Next(); err != io.EOF {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestAMessageOverTheLimitIsPassedBy(t *testing.T) {
	large := bytes.Repeat([]byte("x"), limit+1)
	r := envelope.NewReader(bytes.NewReader(batchOf(0, []byte("a"), large, []byte("b"))), limit)
	for _, want := range []string{"a", "", "b"} {
		_, got, err := r.Next()
		var tooLarge *envelope.TooLargeError
		if want == "" {
			if !errors.As(err, &tooLarge) || tooLarge.Size != limit+1 || tooLarge.Limit != limit || string(tooLarge.Head) != string(large[:64]) {
				t.Errorf("the large message: %v", err)
			}
			continue
		}
		if err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

func TestWhatIsCutOffIsNoEnd(t *testing.T) {
	for _, m := range [][]byte{[]byte("message"), make([]byte, 300<<10), make([]byte, limit+1)} {
		whole := batchOf(0, m)
		for _, cut := range []int{1, 4, 5, 6, len(whole) / 2, len(whole) - 1} {
			if _, _, err := envelope.NewReader(bytes.NewReader(whole[:cut]), limit).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%d of %d bytes: %v, want io.ErrUnexpectedEOF", cut, len(whole), err)
			}
		}
	}
}

func TestUnknownFlagsEndTheStream(t *testing.T) {
	for _, flags := range []byte{4, 0x80, 0xff} {
		if _, _, err := envelope.NewReader(bytes.NewReader(batchOf(flags, nil)), limit).Next(); !errors.Is(err, envelope.ErrFlags) {
			t.Errorf("flags %#x: %v", flags, err)
		}
	}
}

// endless is as many zero bytes as a peer claims to have.
type endless struct{ left int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.left)
	e.left -= n
	return int(n), nil
}

func TestAClaimHoldsNoMemory(t *testing.T) {
	for name, tt := range map[string]struct {
		size    uint32
		arrives int64
		limit   int
	}{
		"2 GB over the limit, which come":              {1<<31 - 1, 1<<31 - 1, limit},
		"2 GB over the limit, which do not":            {1<<31 - 1, 100, limit},
		"2 GB within the limit, of which 100 KB come":  {1<<31 - 1, 100 << 10, 1<<31 - 1},
		"4 GB less one byte, of which nothing ever is": {1<<32 - 1, 0, limit},
	} {
		t.Run(name, func(t *testing.T) {
			header := binary.BigEndian.AppendUint32([]byte{0}, tt.size)
			r := envelope.NewReader(io.MultiReader(bytes.NewReader(header), &endless{tt.arrives}), tt.limit)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, message, err := r.Next()
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("got %d bytes", len(message))
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 3<<20 {
				t.Errorf("%d bytes were allocated", used)
			}
		})
	}
}

func FuzzReader(f *testing.F) {
	f.Add(batchOf(0, []byte("a"), nil, []byte("b")))
	f.Add(batchOf(3, make([]byte, 200)))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		const limit = 100
		r, taken := envelope.NewReader(bytes.NewReader(data), limit), 0
		for {
			_, message, err := r.Next()
			var tooLarge *envelope.TooLargeError
			if errors.As(err, &tooLarge) {
				taken += envelope.HeaderLen + int(tooLarge.Size)
				continue
			}
			if err != nil {
				if err == io.EOF && taken != len(data) {
					t.Fatalf("ended after %d of %d bytes", taken, len(data))
				}
				return
			}
			if len(message) > limit || !bytes.Equal(message, data[taken+envelope.HeaderLen:][:len(message)]) {
				t.Fatalf("%x is not what stands at %d", message, taken)
			}
			taken += envelope.HeaderLen + len(message)
		}
	})
}
