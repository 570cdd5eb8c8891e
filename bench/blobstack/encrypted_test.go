package blobstack_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
)

// alternately runs ours and raw in turn, so that both see the same machine, and reports
// the median of each and how fast ours is against raw: 1 is as fast.
func alternately(b *testing.B, ours, raw func() error) {
	b.Helper()
	alternatelyAfter(b, func() {}, ours, raw)
}

// alternatelyAfter is alternately that calls prepare before each run, outside of its time.
func alternatelyAfter(b *testing.B, prepare func(), ours, raw func() error) {
	b.Helper()
	var took [2][]time.Duration
	run := func(which int, do func() error) {
		prepare()
		start := time.Now()
		err := do()
		took[which] = append(took[which], time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			run(0, ours)
			run(1, raw)
		} else {
			run(1, raw)
			run(0, ours)
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds())
	}
	b.ReportMetric(0, "ns/op") // both together mean nothing
	b.ReportMetric(median(took[0]), "ours-ns")
	b.ReportMetric(median(took[1]), "raw-ns")
	b.ReportMetric(median(took[1])/median(took[0]), "of-raw-speed")
}

// oneBlob is the store below: it keeps what it is given, without a copy, and hands
// out a copy. So one allocation is in every put, and one in every get.
type oneBlob struct{ blobs map[blobref.Ref][]byte }

func newOneBlob() *oneBlob {
	return &oneBlob{make(map[blobref.Ref][]byte)}
}

func (*oneBlob) Mode() blobstore.Mode { return blobstore.Opaque }

func (s *oneBlob) Get(_ context.Context, ref blobref.Ref) ([]byte, error) {
	if data, ok := s.blobs[ref]; ok {
		return append([]byte(nil), data...), nil
	}
	return nil, blobstore.ErrNotFound
}

func (s *oneBlob) Set(_ context.Context, ref blobref.Ref, data []byte) error {
	s.blobs[ref] = data
	return nil
}

func (s *oneBlob) SetLocal(ctx context.Context, ref blobref.Ref, data []byte) error {
	return s.Set(ctx, ref, data)
}

func (*oneBlob) Flush(context.Context) error { return nil }

// BenchmarkEncrypted puts and gets a blob beside AES-256-GCM, SHA-256 and one allocation;
// at 64 KiB it must have 0.85 of their speed.
func BenchmarkEncrypted(b *testing.B) {
	keys, err := encrypted.NewKeyring([]byte("passphrase"))
	if err != nil {
		b.Fatal(err)
	}
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	block, err := aes.NewCipher(key)
	if err != nil {
		b.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		b.Fatal(err)
	}
	ctx, nonce := context.Background(), make([]byte, gcm.NonceSize())
	for _, form := range []struct {
		name string
		opts encrypted.Options
	}{
		{"own", encrypted.Options{}},
		{"keyed", encrypted.Options{KeyedIDs: true}},
		{"seed", encrypted.Options{Form: encrypted.Seed}},
	} {
		for _, size := range []int{1 << 10, 64 << 10, 1 << 20} {
			data := make([]byte, size)
			_, _ = rand.Read(data)
			ref := blobref.Of(data)
			form.opts.KDF = encrypted.KDF{Time: 1, Threads: 1, MemoryKiB: 64}
			s, err := encrypted.New(newOneBlob(), keys, form.opts)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Set(ctx, ref, data); err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("put/%s/%dKiB", form.name, size>>10), func(b *testing.B) {
				var sum [sha256.Size]byte
				alternately(b,
					func() error { return s.Set(ctx, ref, data) },
					func() error {
						sum = sha256.Sum256(data)
						sink = gcm.Seal(make([]byte, 0, size+gcm.Overhead()), nonce, data, sum[:])
						return nil
					})
			})
			b.Run(fmt.Sprintf("get/%s/%dKiB", form.name, size>>10), func(b *testing.B) {
				sum := ref.Sum()
				sealed := gcm.Seal(nil, nonce, data, sum[:])
				alternately(b,
					func() error {
						got, err := s.Get(ctx, ref)
						sink = got
						return err
					},
					func() error {
						stored := append([]byte(nil), sealed...)
						got, err := gcm.Open(stored[:0], nonce, stored, sum[:])
						if err == nil && sha256.Sum256(got) != sum {
							err = blobstore.ErrCorrupt
						}
						sink = got
						return err
					})
			})
		}
	}
}

// sink keeps results, and so their allocations, from being optimised away.
var sink []byte
