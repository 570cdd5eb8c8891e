package encrypted

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func fuzzed(t testing.TB, opts Options) (*Store, *memory.Store) {
	t.Helper()
	keys, err := NewKeyring([]byte("pass"))
	if err != nil {
		t.Fatal(err)
	}
	opts.KDF, opts.ChunkBytes = KDF{Time: 1, Threads: 1, MemoryKiB: 8}, 4<<10
	below := memory.New(blobstore.Opaque)
	s, err := New(below, keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s, below
}

// FuzzParseHeader: a header that is parsed says nothing that is out of bounds.
func FuzzParseHeader(f *testing.F) {
	s, below := fuzzed(f, Options{})
	ref, err := s.PutBytes(context.Background(), []byte("data"))
	if err != nil {
		f.Fatal(err)
	}
	sealed, err := below.Get(context.Background(), ref)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:headerSize])
	f.Add(sealed[:100])
	f.Add([]byte(blobstore.EncryptedMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !IsEncrypted(data) {
			data = append([]byte(blobstore.EncryptedMagic), data...)
		}
		if len(data) >= headerSize {
			FixCRC(data)
		}
		h, err := parseHeader(data)
		if err != nil {
			if h != nil || !errors.Is(err, blobstore.ErrCorrupt) && !errors.Is(err, blobstore.ErrUnsupported) {
				t.Fatalf("%v, %v", h, err)
			}
			return
		}
		if err := h.salted.kdf.validate(); err != nil || h.chunkLog < minChunkLog || h.chunkLog > maxChunkLog {
			t.Fatalf("%+v was taken: %v", h, err)
		}
		if size, err := plainSize(data, int64(len(data))); err == nil && (size < 0 || size > int64(len(data))) {
			t.Fatalf("%d bytes in %d", size, len(data))
		}
	})
}

// FuzzParseMarker: a marker that is parsed is written and parsed to the same again.
func FuzzParseMarker(f *testing.F) {
	for _, opts := range []Options{{}, {KeyedIDs: true}} {
		s, below := fuzzed(f, opts)
		if _, err := s.PutBytes(context.Background(), nil); err != nil {
			f.Fatal(err)
		}
		text, err := below.Get(context.Background(), blobstore.EncryptionMarkers()[0])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMarker(data)
		if err != nil {
			if m != nil || !errors.Is(err, ErrTampered) && !errors.Is(err, blobstore.ErrUnsupported) {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		text := m.encode()
		again, err := parseMarker(text)
		if err != nil || !bytes.Equal(again.encode(), text) {
			t.Fatalf("what was parsed is written as %s: %v", text, err)
		}
	})
}

// FuzzParseKeyring: a file gives as many passphrases as it has lines, none empty.
func FuzzParseKeyring(f *testing.F) {
	for _, text := range []string{"pass\n", "new\nold", "\n", "", "a\n\nb\n", "\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		k, err := parseKeyring(data)
		if err != nil {
			return
		}
		if k.Len() == 0 || k.Len() > bytes.Count(data, []byte("\n"))+1 {
			t.Fatalf("%d passphrases in %d lines", k.Len(), bytes.Count(data, []byte("\n"))+1)
		}
		for _, p := range k.passphrases {
			if len(p) == 0 || bytes.IndexByte(p, '\n') >= 0 {
				t.Fatalf("%q is a passphrase", p)
			}
		}
	})
}

// FuzzGet: whatever the store below holds, what is handed out is what was stored.
func FuzzGet(f *testing.F) {
	data := bytes.Repeat([]byte("0123456789"), 500)
	for _, opts := range []Options{{}, {Form: Seed}} {
		s, below := fuzzed(f, opts)
		ref, err := s.PutBytes(context.Background(), data)
		if err != nil {
			f.Fatal(err)
		}
		sealed, err := below.Get(context.Background(), ref)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(sealed, int64(0), int64(10))
		f.Add(sealed[:300], int64(4090), int64(10))
	}
	s, below := fuzzed(f, Options{Mode: blobstore.Opaque}) // without the hash, which would find everything
	ref := blobref.Of(data)
	if err := s.Set(context.Background(), ref, data); err != nil {
		f.Fatal(err)
	}
	genuine, err := below.Get(context.Background(), ref)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(genuine, int64(4000), int64(200))
	f.Fuzz(func(t *testing.T, sealed []byte, off, n int64) {
		if err := below.Set(t.Context(), ref, sealed); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get(t.Context(), ref); err == nil && !bytes.Equal(got, data) {
			t.Fatalf("Get handed out %d bytes that nobody stored", len(got))
		}
		got, err := s.GetRange(t.Context(), ref, off, n)
		if err == nil && !bytes.Contains(data, got) {
			t.Fatalf("GetRange handed out %d bytes that nobody stored", len(got))
		}
		if b, err := s.Open(t.Context(), ref); err == nil {
			if !bytes.Equal(sealed, genuine) && b.Size() != int64(len(data)) {
				t.Fatalf("Open found %d bytes that nobody stored", b.Size())
			}
			b.Close()
		}
	})
}
