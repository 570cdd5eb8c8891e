package outputsink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLiveReadersGetEveryByteWhileItComes(t *testing.T) {
	in := numbered(1, 40_000)
	f := newDiskFile(t, t.TempDir())
	o := DefaultOptions()
	o.Open = func() (File, error) { return f, nil }
	s := New(o)
	var wg sync.WaitGroup
	for range 3 {
		l := s.Live()
		wg.Go(func() {
			defer l.Close()
			got, err := io.ReadAll(l)
			if err != nil || !bytes.Equal(got, in) {
				t.Errorf("read %d of %d bytes, %v", len(got), len(in), err)
			}
		})
	}
	for chunk := range bytes.Lines(in) {
		_, _ = s.Stdout().Write(chunk)
	}
	if _, err := s.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := f.Write(nil); err == nil {
		t.Error("the file is still open")
	}
}

func TestLiveWaitsForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(DefaultOptions())
		l := s.Live()
		defer l.Close()
		buf := make([]byte, 100)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if n, err := l.ReadContext(ctx, buf); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with nothing there: %d, %v", n, err)
		}
		go func() {
			time.Sleep(time.Minute)
			fmt.Fprint(s.Stderr(), "now")
			time.Sleep(time.Minute)
			_, _ = s.Close()
		}()
		if n, err := l.Read(buf); err != nil || string(buf[:n]) != "now" {
			t.Errorf("read %q, %v", buf[:n], err)
		}
		if n, err := l.Read(buf); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the end: %d, %v", n, err)
		}
		if n, err := l.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing: %d, %v", n, err)
		}
	})
}

func TestLiveReadsAtAnyOffset(t *testing.T) {
	for _, lines := range []int{10, 20_000} { // from memory, and from both
		t.Run(fmt.Sprint(lines, " lines"), func(t *testing.T) {
			in := numbered(1, lines)
			f := newDiskFile(t, t.TempDir())
			o := DefaultOptions()
			o.Open = func() (File, error) { return f, nil }
			s := New(o)
			defer s.Close()
			_, _ = s.Stdout().Write(in[:len(in)-50])
			_, _ = s.Stdout().Write(in[len(in)-50:])
			l := s.Live()
			defer l.Close()
			if l.Size() != int64(len(in)) {
				t.Errorf("size %d, want %d", l.Size(), len(in))
			}
			for _, off := range []int{0, 1, len(in) / 2, len(in) - 60, len(in) - 50, len(in) - 1} {
				buf := make([]byte, 70)
				n, err := l.ReadAt(buf, int64(off))
				want := in[off:min(len(in), off+70)]
				if !bytes.Equal(buf[:n], want) || (err == nil) != (n == 70) || err != nil && !errors.Is(err, io.EOF) {
					t.Errorf("at %d: %d bytes, %v", off, n, err)
				}
			}
			if _, err := l.ReadAt(make([]byte, 1), -1); err == nil {
				t.Error("a negative offset is read")
			}
		})
	}
}

func TestLiveReadersAreToldWhatIsLost(t *testing.T) {
	o := DefaultOptions() // without a place to keep anything
	s := New(o)
	l := s.Live()
	defer l.Close()
	line := strings.Repeat("x", 99) + "\n"
	for range 2000 {
		fmt.Fprint(s.Stdout(), line)
	}
	if _, err := s.Close(); err == nil {
		t.Error("nothing was kept and nothing is said")
	}
	got, lost := readAll(t, l)
	if int64(len(got))+lost != 200_000 || lost == 0 {
		t.Errorf("%d bytes read, %d lost", len(got), lost)
	}
}

func TestTheFileIsOpenUntilTheLastReaderIsClosed(t *testing.T) {
	f := &memFile{url: "artifact://0"}
	o := DefaultOptions()
	o.Open = func() (File, error) { return f, nil }
	s := New(o)
	in := numbered(1, 20_000)
	l := s.Live()
	_, _ = s.Stdout().Write(in)
	if _, err := s.Close(); err != nil || f.closed {
		t.Fatalf("%v, closed %v", err, f.closed)
	}
	if got, _ := readAll(t, l); got != string(in) {
		t.Errorf("%d of %d bytes read", len(got), len(in))
	}
	if err := l.Close(); err != nil || !f.closed {
		t.Errorf("%v, closed %v", err, f.closed)
	}
	if err := l.Close(); err != nil {
		t.Errorf("closing again: %v", err)
	}
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed reader: %v", err)
	}
	if _, err := l.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed reader: %v", err)
	}
	late := s.Live()
	defer late.Close()
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("a reader that came too late: %v", err)
	}
}
