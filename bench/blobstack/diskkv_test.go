package blobstack_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	_ "modernc.org/sqlite"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

// diskkvBlobs are the blobs of one round: 1 KiB each, all different.
func diskkvBlobs(n, round int) [][]byte {
	blobs := make([][]byte, n)
	for i := range blobs {
		blobs[i] = make([]byte, 1024)
		binary.LittleEndian.PutUint64(blobs[i], uint64(i))
		binary.LittleEndian.PutUint64(blobs[i][8:], uint64(round))
	}
	return blobs
}

// BenchmarkDiskKV puts blobs of 1 KiB into a file, a hundred or a thousand in a
// transaction, and gets them one by one; each must take at most 1.2 times what the
// driver takes for the same rows, hashes and transactions through database/sql.
func BenchmarkDiskKV(b *testing.B) {
	const blobs = 100_000
	for _, sync := range []bool{false, true} {
		for _, batch := range []int{100, 1000} {
			b.Run(fmt.Sprintf("sync=%v/batch=%d", sync, batch), func(b *testing.B) {
				var put, rawPut, get, rawGet []time.Duration
				took := func(list *[]time.Duration, do func() error) {
					b.Helper()
					start := time.Now()
					if err := do(); err != nil {
						b.Fatal(err)
					}
					*list = append(*list, time.Since(start))
				}
				for round := 0; b.Loop(); round++ {
					data := diskkvBlobs(blobs, round)
					s, _, err := diskkv.Open(b.Context(), filepath.Join(b.TempDir(), "ours"), diskkv.Options{Sync: sync})
					if err != nil {
						b.Fatal(err)
					}
					raw := openRaw(b, filepath.Join(b.TempDir(), "raw"), sync)
					ours := func() {
						took(&put, func() error { return putOurs(s, data, batch) })
						took(&get, func() error { return getOurs(s, data) })
					}
					peer := func() {
						took(&rawPut, func() error { return putRaw(raw, data, batch) })
						took(&rawGet, func() error { return getRaw(raw, data) })
					}
					if round%2 == 0 {
						ours()
						peer()
					} else {
						peer()
						ours()
					}
					if err := s.Close(); err != nil {
						b.Fatal(err)
					}
					if err := raw.Close(); err != nil {
						b.Fatal(err)
					}
				}
				median := func(d []time.Duration) float64 {
					slices.Sort(d)
					return float64(d[len(d)/2].Nanoseconds()) / blobs
				}
				b.ReportMetric(0, "ns/op") // both together mean nothing
				b.ReportMetric(median(put), "put-ns")
				b.ReportMetric(median(rawPut), "raw-put-ns")
				b.ReportMetric(median(put)/median(rawPut), "x-put")
				b.ReportMetric(median(get), "get-ns")
				b.ReportMetric(median(rawGet), "raw-get-ns")
				b.ReportMetric(median(get)/median(rawGet), "x-get")
			})
		}
	}
}

func putOurs(s *diskkv.Store, data [][]byte, batch int) error {
	for part := range slices.Chunk(data, batch) {
		if _, err := s.PutAll(context.Background(), part); err != nil {
			return err
		}
	}
	return nil
}

func getOurs(s *diskkv.Store, data [][]byte) error {
	for _, d := range data {
		if _, err := s.Get(context.Background(), blobref.Of(d)); err != nil {
			return err
		}
	}
	return nil
}

func openRaw(b *testing.B, path string, sync bool) *sql.DB {
	b.Helper()
	level := "NORMAL"
	if sync {
		level = "FULL"
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous("+level+")&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err == nil {
		_, err = db.ExecContext(b.Context(), "CREATE TABLE cursorDiskKV(key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB)")
	}
	if err != nil {
		b.Fatal(err)
	}
	return db
}

func putRaw(db *sql.DB, data [][]byte, batch int) error {
	ctx := context.Background()
	for part := range slices.Chunk(data, batch) {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		insert, err := tx.PrepareContext(ctx, "INSERT INTO cursorDiskKV(key, value) VALUES(?, ?)")
		if err != nil {
			return err
		}
		for _, d := range part {
			sum := sha256.Sum256(d)
			if _, err := insert.ExecContext(ctx, "agentKv:blob:"+hex.EncodeToString(sum[:]), d); err != nil {
				return err
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}

func getRaw(db *sql.DB, data [][]byte) error {
	ctx := context.Background()
	get, err := db.PrepareContext(ctx, "SELECT value FROM cursorDiskKV WHERE key = ?")
	if err != nil {
		return err
	}
	defer get.Close()
	for _, d := range data {
		sum := sha256.Sum256(d)
		var value []byte
		if err := get.QueryRowContext(ctx, "agentKv:blob:"+hex.EncodeToString(sum[:])).Scan(&value); err != nil {
			return err
		}
		if sha256.Sum256(value) != sum {
			return fmt.Errorf("%x differs", sum)
		}
	}
	return nil
}

// BenchmarkDiskKVTogether has 16 goroutines store blobs of 1 KiB one by one, in a file
// that is synced: those that meet share a transaction, where the driver's users each
// have one of their own.
func BenchmarkDiskKVTogether(b *testing.B) {
	const blobs, writers = 2000, 16
	ctx := context.Background()
	together := func(put func(data []byte) error, data [][]byte) error {
		var g errgroup.Group
		for part := range slices.Chunk(data, len(data)/writers) {
			g.Go(func() error {
				for _, d := range part {
					if err := put(d); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
	var ours, raw []time.Duration
	for round := 0; b.Loop(); round++ {
		data := diskkvBlobs(blobs, round)
		s, _, err := diskkv.Open(ctx, filepath.Join(b.TempDir(), "ours"), diskkv.Options{Sync: true})
		if err != nil {
			b.Fatal(err)
		}
		db := openRaw(b, filepath.Join(b.TempDir(), "raw"), true)
		db.SetMaxOpenConns(1) // waiting for the lock of the file would cost more
		start := time.Now()
		err = together(func(d []byte) error {
			_, err := s.PutBytes(ctx, d)
			return err
		}, data)
		ours = append(ours, time.Since(start))
		start = time.Now()
		rawErr := together(func(d []byte) error { return putRaw(db, [][]byte{d}, 1) }, data)
		raw = append(raw, time.Since(start))
		if err := errors.Join(err, rawErr, s.Close(), db.Close()); err != nil {
			b.Fatal(err)
		}
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Nanoseconds()) / blobs
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(ours), "ours-ns")
	b.ReportMetric(median(raw), "raw-ns")
	b.ReportMetric(median(ours)/median(raw), "x-raw")
}
