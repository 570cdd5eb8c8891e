// Package blobstore_test measures the blob directory against the same work done
// by hand: the hash and the system calls that nobody can save.
//
//	go test -run '^$' -bench . ./bench/blobstore
//
// Each benchmark alternates between the store and its opponent, so that both see
// the same machine, and reports the ratio of their medians as "x-by-hand".
package blobstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
)

// versus runs ours and byHand in turn, and reports the median of each and their
// ratio. The order changes from round to round: who comes second finds warmer
// caches.
func versus(b *testing.B, ours, byHand func(i int) error) {
	b.Helper()
	var took [2][]time.Duration
	run := func(which int, do func(int) error, i int) {
		start := time.Now()
		err := do(i)
		took[which] = append(took[which], time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			run(0, ours, i)
			run(1, byHand, i)
		} else {
			run(1, byHand, i)
			run(0, ours, i)
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds())
	}
	b.ReportMetric(0, "ns/op") // both together mean nothing
	b.ReportMetric(median(took[0]), "ours-ns")
	b.ReportMetric(median(took[1]), "by-hand-ns")
	b.ReportMetric(median(took[0])/median(took[1]), "x-by-hand")
}

func sized(b *testing.B, run func(b *testing.B, size int)) {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { run(b, size) })
	}
}

func open(b *testing.B, dir string, opts localdir.Options) *localdir.Store {
	b.Helper()
	s, err := localdir.Open(dir, opts)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkPutPresent stores bytes that are there already; must be within 1.15 at
// 64 KiB.
func BenchmarkPutPresent(b *testing.B) {
	for _, sync := range []bool{false, true} {
		b.Run(fmt.Sprintf("sync=%v", sync), func(b *testing.B) {
			sized(b, func(b *testing.B, size int) {
				dir := b.TempDir()
				store := open(b, dir, localdir.Options{Sync: sync})
				data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
				if _, err := blobstore.Put(context.Background(), store, data); err != nil {
					b.Fatal(err)
				}
				stored := make([]byte, size)
				versus(b,
					func(int) error {
						_, err := blobstore.Put(context.Background(), store, data)
						return err
					},
					func(int) error {
						sum := sha256.Sum256(data)
						f, err := os.Open(filepath.Join(dir, hex.EncodeToString(sum[:])))
						if err != nil {
							return err
						}
						defer f.Close()
						if _, err := f.ReadAt(stored, 0); err != nil {
							return err
						}
						if !bytes.Equal(stored, data) {
							return fmt.Errorf("%s differs", f.Name())
						}
						return nil
					})
			})
		})
	}
}

// BenchmarkPutNew stores bytes that nobody has seen, without fsync; must be
// within 1.3 at 64 KiB.
func BenchmarkPutNew(b *testing.B) {
	sized(b, func(b *testing.B, size int) {
		mine, theirs := b.TempDir(), b.TempDir()
		store := open(b, mine, localdir.Options{})
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		versus(b,
			func(i int) error {
				binary.LittleEndian.PutUint64(data, uint64(i))
				_, err := blobstore.Put(context.Background(), store, data)
				return err
			},
			func(i int) error {
				binary.LittleEndian.PutUint64(data, uint64(i))
				return putByHand(theirs, data, false)
			})
	})
}

// BenchmarkPutNewSync is BenchmarkPutNew with the file and its directory fsynced.
func BenchmarkPutNewSync(b *testing.B) {
	sized(b, func(b *testing.B, size int) {
		mine, theirs := b.TempDir(), b.TempDir()
		store := open(b, mine, localdir.Options{Sync: true})
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		versus(b,
			func(i int) error {
				binary.LittleEndian.PutUint64(data, uint64(i))
				_, err := blobstore.Put(context.Background(), store, data)
				return err
			},
			func(i int) error {
				binary.LittleEndian.PutUint64(data, uint64(i))
				return putByHand(theirs, data, true)
			})
	})
}

func putByHand(dir string, data []byte, sync bool) error {
	sum := sha256.Sum256(data)
	name := filepath.Join(dir, hex.EncodeToString(sum[:]))
	f, err := os.OpenFile(name+".tmp", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if sync {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil || !sync {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// BenchmarkGet reads and verifies.
func BenchmarkGet(b *testing.B) {
	sized(b, func(b *testing.B, size int) {
		dir := b.TempDir()
		store := open(b, dir, localdir.Options{})
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16)
		ref, err := blobstore.Put(context.Background(), store, data)
		if err != nil {
			b.Fatal(err)
		}
		versus(b,
			func(int) error {
				_, err := store.Get(context.Background(), ref)
				return err
			},
			func(int) error {
				got, err := os.ReadFile(filepath.Join(dir, ref.Hex()))
				if err != nil {
					return err
				}
				if blobref.FromSum(sha256.Sum256(got)) != ref {
					return fmt.Errorf("%v differs", ref)
				}
				return nil
			})
	})
}
