package pipe

import (
	"bytes"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, mu *sync.Mutex, deliver func([]byte)) (*Reader, *os.File) {
	t.Helper()
	ours, theirs, err := Open(true)
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(ours, mu, deliver)
	t.Cleanup(r.Close)
	t.Cleanup(func() { theirs.Close() })
	return r, theirs
}

func TestASweepFindsAllThatWasWritten(t *testing.T) {
	var got bytes.Buffer
	var mu sync.Mutex
	r, w := open(t, &mu, func(b []byte) { got.Write(b) })
	r.Start()
	for i := range 1000 {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 100)); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		r.Sweep()
		n := got.Len()
		mu.Unlock()
		if n != 100*(i+1) {
			t.Fatalf("%d bytes behind %d", n, 100*(i+1))
		}
	}
}

func TestAReaderEndsWithItsWriter(t *testing.T) {
	var got bytes.Buffer
	r, w := open(t, nil, func(b []byte) { got.Write(b) })
	r.Start()
	if _, err := w.WriteString("all"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	<-r.Ended()
	if got.String() != "all" {
		t.Errorf("%q", got.String())
	}
}

func TestCloseEndsAReaderWhoseWriterGoesOn(t *testing.T) {
	r, _ := open(t, nil, func([]byte) {})
	r.Start()
	r.Close()
	<-r.Ended()
}
