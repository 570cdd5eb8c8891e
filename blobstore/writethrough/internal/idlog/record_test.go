package idlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentrun/agentrun/blobref"
)

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	ref := blobref.Of([]byte("a blob"))
	for _, r := range []Record{
		{Kind: Queued, Ref: ref},
		{Kind: Done, Ref: ref},
		{Kind: Parked, Code: 4, Ref: ref},
		{Kind: Deleted, Ref: ref},
		{Kind: Damaged},
		{Kind: Reconciled},
	} {
		b := appendRecord(nil, r)
		if len(b) != recordSize {
			t.Fatalf("it has %d bytes", len(b))
		}
		if got, err := parseRecord(b); err != nil || got != r {
			t.Errorf("%+v came back as %+v, %v", r, got, err)
		}
	}
}

func TestAnyDamageInOneCopyOfARecordIsHarmless(t *testing.T) {
	r := Record{Kind: Parked, Code: 1, Ref: blobref.Of([]byte("a blob"))}
	good := appendRecord(nil, r)
	for bit := range recordSize * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		if got, err := parseRecord(b); err != nil || got != r {
			t.Fatalf("with bit %d flipped it is %+v, %v", bit, got, err)
		}
	}
	for _, copy := range []int{0, copySize} {
		b := bytes.Clone(good)
		clear(b[copy : copy+copySize])
		if got, err := parseRecord(b); err != nil || got != r {
			t.Errorf("with a copy cleared it is %+v, %v", got, err)
		}
	}
}

func TestDamageInBothCopiesOfARecordIsFound(t *testing.T) {
	good := appendRecord(nil, Record{Kind: Queued, Ref: blobref.Of([]byte("a blob"))})
	for bit := range copySize * 8 {
		b := bytes.Clone(good)
		b[bit/8] ^= 1 << (bit % 8)
		b[copySize+bit/8] ^= 1 << (bit % 8)
		if got, err := parseRecord(b); !errors.Is(err, errDamaged) {
			t.Fatalf("with bit %d flipped in both it is %+v, %v", bit, got, err)
		}
	}
	if got, err := parseRecord(make([]byte, recordSize)); !errors.Is(err, errDamaged) {
		t.Errorf("zeros are %+v, %v", got, err)
	}
}

func TestARecordOfANewerVersionIsRefused(t *testing.T) {
	b := appendRecord(nil, Record{Kind: Queued, Ref: blobref.Of([]byte("a blob"))})
	b[2] = version + 1
	binary.LittleEndian.PutUint32(b[copySize-4:], crc32.Checksum(b[:copySize-4], castagnoli))
	if got, err := parseRecord(b); !errors.Is(err, ErrNewer) {
		t.Errorf("it is %+v, %v", got, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), nil, dir, false, nil); !errors.Is(err, ErrNewer) {
		t.Errorf("Open = %v", err)
	}
	if now, err := os.ReadFile(filepath.Join(dir, logName)); err != nil || !bytes.Equal(now, b) {
		t.Errorf("the log was changed, %v", err)
	}
}

func FuzzParseRecord(f *testing.F) {
	for _, r := range []Record{{Kind: Queued, Ref: blobref.Of(nil)}, {Kind: Damaged}, {Kind: Parked, Code: 255, Ref: blobref.Of([]byte("x"))}} {
		f.Add(appendRecord(nil, r))
	}
	f.Add(make([]byte, recordSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < recordSize {
			return
		}
		r, err := parseRecord(b[:recordSize])
		if err != nil {
			if !errors.Is(err, errDamaged) && !errors.Is(err, ErrNewer) {
				t.Errorf("error %v", err)
			}
			return
		}
		if again, err := parseRecord(appendRecord(nil, r)); err != nil || again != r {
			t.Errorf("%+v is written as %+v, %v", r, again, err)
		}
	})
}
