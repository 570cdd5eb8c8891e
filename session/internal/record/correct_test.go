package record

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func sealedLine(text string) []byte {
	b := Begin(nil, "custom", "6921f0a1c3d44b7e90aa12fe", "", time.UnixMilli(1_760_000_000_000))
	b = append(b, `,"customType":"x","data":"`...)
	b = append(b, text...)
	b = append(b, '"')
	b = Seal(b, 0)
	return b[:len(b)-1]
}

func TestEverySingleBitOfASealedLineIsTurnedBack(t *testing.T) {
	for _, text := range []string{"", "short", strings.Repeat("the quick brown fox ", 40)} {
		line := sealedLine(text)
		for i := range line {
			for bit := range 8 {
				hurt := bytes.Clone(line)
				hurt[i] ^= 1 << bit
				f, ok := Correct(hurt)
				if !ok || f.Offset != i || f.Mask != 1<<bit {
					t.Fatalf("bit %d of byte %d: %+v, %v", bit, i, f, ok)
				}
			}
		}
	}
}

func TestALineThatWasChangedOtherwiseIsNotCorrected(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	line := sealedLine(strings.Repeat("the quick brown fox ", 40))
	corrected := 0
	for range 2000 {
		hurt := bytes.Clone(line)
		for range 2 + r.IntN(4) {
			hurt[r.IntN(len(hurt))] ^= byte(1 + r.IntN(255))
		}
		if _, ok := Correct(hurt); ok {
			corrected++
		}
	}
	// A line of this length passes once in 600,000.
	if corrected > 1 {
		t.Fatalf("%d of 2000 lines with several changes were taken for one flipped bit", corrected)
	}
	if _, ok := Correct(line); ok {
		t.Fatal("an undamaged line was corrected")
	}
	if _, ok := Correct([]byte(`{"type":"message","id":"a","parentId":null}`)); ok {
		t.Fatal("a line without a crc was corrected")
	}
}

func TestEditChangesTheMembersNamedAndNothingElse(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{`{"type":"m","id":"a","parentId":null,"x":[1, 2]}`, `{"type":"m","id":"b","parentId":"p","x":[1, 2]}`},
		{`{ "parentId" : "q" , "id" : "a" }`, `{ "parentId" : "p" , "id" : "b" }`},
		{`{"id":"z","id":"a","message":{"id":"a","parentId":"a"}}`, `{"id":"z","id":"b","message":{"id":"a","parentId":"a"},"parentId":"p"}`},
	} {
		got, err := Edit([]byte(tt.line), map[string][]byte{"id": []byte(`"b"`), "parentId": []byte(`"p"`)})
		if err != nil || string(got) != tt.want {
			t.Errorf("%s\n got %s, %v\nwant %s", tt.line, got, err, tt.want)
		}
	}
	got, err := Edit(sealedLine("x"), map[string][]byte{"id": []byte(`"b"`)})
	e, perr := Parse(got)
	if err != nil || perr != nil || e.CRC != CRCOK || string(e.ID) != "b" {
		t.Errorf("sealed: %s, %v, %v", got, err, perr)
	}
	if _, err := Edit([]byte(`{"id":`), nil); err == nil {
		t.Error("what is no object was edited")
	}
}
