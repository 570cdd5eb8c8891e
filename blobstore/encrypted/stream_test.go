package encrypted_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func directory(t testing.TB) *localdir.Store {
	t.Helper()
	s, err := localdir.Open(filepath.Join(t.TempDir(), "store"), localdir.Options{Mode: blobstore.Opaque})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noise is a stream that nobody holds in memory.
func noise(size int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }

// allocated returns how many bytes do allocated, which bounds what it held.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestAStreamOf70MiBGoesThroughLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("encrypts and writes 280 MiB")
	}
	const size, bound = 70<<20 + 12345, 16 << 20
	s := open(t, directory(t), ring(t, "pass"), encrypted.Options{TempDir: t.TempDir()})
	put(t, s, nil) // makes the marker
	var ref blobref.Ref
	if n := allocated(func() {
		var err error
		var stored int64
		if ref, stored, err = s.Put(t.Context(), noise(size)); err != nil || stored != size {
			t.Fatal(stored, err)
		}
	}); n > bound {
		t.Errorf("Put allocated %d bytes", n)
	}
	if n := allocated(func() {
		b, err := s.Open(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if same, err := equal(b, noise(size)); err != nil || !same {
			t.Fatalf("Open yields other bytes (%v)", err)
		}
	}); n > bound {
		t.Errorf("Open and reading allocated %d bytes", n)
	}
	if n := allocated(func() {
		if err := s.SetStream(t.Context(), ref, noise(size), size); err != nil {
			t.Fatal(err)
		}
	}); n > bound {
		t.Errorf("SetStream allocated %d bytes", n)
	}
	// Its key is changed without it being held in memory.
	newer := open(t, s.Unwrap(), ring(t, "newer", "pass"), encrypted.Options{})
	put(t, newer, nil)
	if n := allocated(func() {
		if done, err := newer.Rotate(t.Context(), nil); err != nil || done.Rewrapped != 1 {
			t.Fatalf("Rotate = %+v, %v", done, err)
		}
	}); n > bound {
		t.Errorf("Rotate allocated %d bytes", n)
	}
	part, err := open(t, s.Unwrap(), ring(t, "newer"), encrypted.Options{}).GetRange(t.Context(), ref, size-5, 100)
	if err != nil || len(part) != 5 {
		t.Errorf("GetRange = %d bytes, %v", len(part), err)
	}
}

func equal(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, x)
		m, merr := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) || err != merr {
			return false, err
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return true, nil
		}
	}
}

func TestPutReadsTwiceWhatItCanAndSpoolsTheRest(t *testing.T) {
	const size = 2<<20 + 77
	data := random(size, 1)
	spools := t.TempDir()
	s := open(t, directory(t), ring(t, "pass"), encrypted.Options{TempDir: spools})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, r := range map[string]io.Reader{
		"a file":           f,
		"a pipe":           iotest.HalfReader(bytes.NewReader(data)),
		"a reader":         iotest.DataErrReader(bytes.NewReader(data)),
		"a seeker in data": bytes.NewReader(data),
	} {
		ref, n, err := s.Put(t.Context(), r)
		if err != nil || n != size || ref != blobref.Of(data) {
			t.Errorf("Put of %s = %v, %d, %v", name, ref, n, err)
		}
		readEveryWay(t, s, ref, data, name)
	}
	// From where the seeker stands, not from its beginning.
	r := bytes.NewReader(data)
	_, _ = r.Seek(1000, io.SeekStart)
	if ref, n, err := s.Put(t.Context(), r); err != nil || n != size-1000 || ref != blobref.Of(data[1000:]) {
		t.Errorf("Put from the middle = %v, %d, %v", ref, n, err)
	}
	// Names of spools are gone before a byte is in them.
	during := -1
	_, _, err = s.Put(t.Context(), io.MultiReader(bytes.NewReader(data), readerFunc(func([]byte) (int, error) {
		entries, err := os.ReadDir(spools)
		during = len(entries)
		return 0, errors.Join(err, io.ErrUnexpectedEOF)
	})))
	if !errors.Is(err, io.ErrUnexpectedEOF) || during != 0 {
		t.Errorf("%d files were there while a stream was spooled; Put = %v", during, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// changing is a file that is another when it is read for the second time.
type changing struct {
	*bytes.Reader
	next []byte
}

func (c *changing) Seek(offset int64, whence int) (int64, error) {
	if whence == io.SeekStart {
		c.Reader = bytes.NewReader(c.next)
	}
	return c.Reader.Seek(offset, whence)
}

func TestAFileThatChangesBetweenTwoReadsIsNotStored(t *testing.T) {
	data := random(2<<20, 2)
	flipped := bytes.Clone(data)
	flipped[len(data)-1] ^= 1
	for name, next := range map[string][]byte{
		"another byte": flipped,
		"shorter":      data[:len(data)-1],
		"longer":       append(bytes.Clone(data), 0),
		"empty":        nil,
	} {
		s := open(t, directory(t), ring(t, "pass"), encrypted.Options{})
		if ref, _, err := s.Put(t.Context(), &changing{bytes.NewReader(data), next}); err == nil {
			t.Errorf("%s: Put = %v", name, ref)
		}
		for info := range s.Walk(t.Context()) {
			t.Errorf("%s: %v is there", name, info.Ref)
		}
	}
}

func TestSetStreamStoresNothingButWhatTheReferenceNames(t *testing.T) {
	data := random(300<<10, 3)
	ref := blobref.Of(data)
	for name, below := range map[string]func() blobstore.Store{
		"a directory":       func() blobstore.Store { return directory(t) },
		"memory":            func() blobstore.Store { return memory.New(blobstore.Opaque) },
		"whole blobs alone": func() blobstore.Store { return whole{memory.New(blobstore.Opaque)} },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, below(), ring(t, "pass"), encrypted.Options{})
			wrong := bytes.Clone(data)
			wrong[0] ^= 1
			cause := errors.New("the line is dead")
			for _, tt := range []struct {
				name string
				r    io.Reader
				size int64
				want error // nil for any
			}{
				{"other bytes", bytes.NewReader(wrong), int64(len(data)), blobstore.ErrMismatch},
				{"fewer bytes", bytes.NewReader(data[:len(data)-1]), int64(len(data)), nil},
				{"more bytes", bytes.NewReader(append(bytes.Clone(data), 0)), int64(len(data)), nil},
				{"a stream that fails", io.MultiReader(bytes.NewReader(data), iotest.ErrReader(cause)), int64(len(data)), cause},
				{"a stream that is cut", io.MultiReader(bytes.NewReader(data[:1000]), iotest.ErrReader(io.ErrUnexpectedEOF)), int64(len(data)), io.ErrUnexpectedEOF},
				{"a negative size", bytes.NewReader(data), -1, nil},
			} {
				err := s.SetStream(t.Context(), ref, tt.r, tt.size)
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
					t.Errorf("%s: SetStream = %v, want %v", tt.name, err, tt.want)
				}
				if _, err := s.Get(t.Context(), ref); !errors.Is(err, blobstore.ErrNotFound) {
					t.Fatalf("%s: Get = %v, want ErrNotFound", tt.name, err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := s.SetStream(ctx, ref, bytes.NewReader(data), int64(len(data))); !errors.Is(err, context.Canceled) {
				t.Errorf("SetStream with a cancelled context = %v", err)
			}
			if err := s.SetStream(t.Context(), ref, bytes.NewReader(data), int64(len(data))); err != nil {
				t.Fatal(err)
			}
			readEveryWay(t, s, ref, data, "the stream")
		})
	}
}

func TestWhatHasToBeHeldAsAWholeHasALimit(t *testing.T) {
	if testing.Short() {
		t.Skip("holds 64 MiB more than once")
	}
	for name, s := range map[string]*encrypted.Store{
		"a store that takes blobs as a whole only": open(t, whole{memory.New(blobstore.Opaque)}, ring(t, "pass"), encrypted.Options{}),
		"the seed's form":                          open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{Form: encrypted.Seed}),
	} {
		if _, _, err := s.Put(t.Context(), noise(64<<20+1)); !errors.Is(err, blobstore.ErrTooLarge) {
			t.Errorf("%s: Put = %v, want ErrTooLarge", name, err)
		}
		if err := s.SetStream(t.Context(), blobref.Of(nil), noise(64<<20+1), 64<<20+1); !errors.Is(err, blobstore.ErrTooLarge) {
			t.Errorf("%s: SetStream = %v, want ErrTooLarge", name, err)
		}
	}
}

// counting counts what is read of the store below.
type counting struct {
	*memory.Store
	bytes int64
}

func (c *counting) GetRange(ctx context.Context, ref blobref.Ref, off, n int64) ([]byte, error) {
	part, err := c.Store.GetRange(ctx, ref, off, n)
	c.bytes += int64(len(part))
	return part, err
}

func (c *counting) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	data, err := c.Store.Get(ctx, ref)
	c.bytes += int64(len(data))
	return data, err
}

func TestARangeCostsTheChunksThatItIsIn(t *testing.T) {
	below := &counting{Store: memory.New(blobstore.Opaque)}
	s := open(t, below, ring(t, "pass"), encrypted.Options{ChunkBytes: 4 << 10})
	data := random(1<<20, 4)
	ref := put(t, s, data)
	for _, tt := range []struct{ off, n, chunks int64 }{
		{0, 1, 1}, {4095, 1, 1}, {4095, 2, 2}, {4096, 4096, 1}, {1<<20 - 1, 100, 1}, {5000, 9000, 3}, {1 << 20, 5, 0}, {7, 0, 0},
	} {
		below.bytes = 0
		got, err := s.GetRange(t.Context(), ref, tt.off, tt.n)
		end := min(tt.off+tt.n, int64(len(data)))
		if err != nil || !bytes.Equal(got, data[tt.off:end]) {
			t.Errorf("GetRange(%d, %d) = %d bytes, %v", tt.off, tt.n, len(got), err)
		}
		if want := headerSize + tt.chunks*(4096+16); below.bytes != want {
			t.Errorf("GetRange(%d, %d) read %d bytes of the store below, want %d", tt.off, tt.n, below.bytes, want)
		}
	}
}

// A store that was opaque let ids be no hashes; one that is verified does not hand them
// out, not even in parts.
func TestAVerifiedStoreDoesNotTrustWhatAnOpaqueOneStored(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	opaque := open(t, below, keys, encrypted.Options{Mode: blobstore.Opaque})
	data := random(200<<10, 5)
	wrong, right := blobref.Of([]byte("something else")), blobref.Of(data)
	for _, id := range []blobref.Ref{wrong, right} {
		if err := opaque.Set(t.Context(), id, data); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, below, keys, encrypted.Options{})
	readEveryWay(t, s, wrong, data, "a blob under an id that is no hash", encrypted.ErrTampered)
	readEveryWay(t, s, right, data, "a blob whose id happens to be its hash")
}

func TestARangeOfABlobThatIsBeingReplaced(t *testing.T) {
	s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{ChunkBytes: 4 << 10})
	data := random(20_000, 6)
	ref := put(t, s, data)
	var work sync.WaitGroup
	stop := make(chan struct{})
	work.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := s.Set(context.Background(), ref, data); err != nil {
					t.Error(err)
				}
			}
		}
	})
	failed := 0
	for i := range 300 {
		off := int64(i * 60)
		got, err := s.GetRange(t.Context(), ref, off, 100)
		if err != nil {
			failed++ // replaced at each of many tries: rare
			continue
		}
		if !bytes.Equal(got, data[off:off+100]) {
			t.Fatal("GetRange handed out other bytes")
		}
	}
	close(stop)
	work.Wait()
	if failed > 3 {
		t.Errorf("%d of 300 ranges failed", failed)
	}
}

func TestAnOpenBlobDoesNotTrustWhatItReadBefore(t *testing.T) {
	below := directory(t)
	s := open(t, below, ring(t, "pass"), encrypted.Options{ChunkBytes: 4 << 10})
	data := random(20_000, 7)
	ref := put(t, s, data)
	b, err := s.Open(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	file, err := os.OpenFile(filepath.Join(below.Dir(), ref.Hex()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt([]byte("damage"), headerSize+5000); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if _, err := b.ReadAt(buf, 5000); !errors.Is(err, encrypted.ErrTampered) {
		t.Errorf("ReadAt of what was changed since = %v, want ErrTampered", err)
	}
	if _, err := b.ReadAt(buf, 100); err != nil || !bytes.Equal(buf, data[100:200]) {
		t.Errorf("ReadAt of another chunk = %v", err)
	}
}

func TestManyReadOneOpenBlob(t *testing.T) {
	s := open(t, directory(t), ring(t, "pass"), encrypted.Options{ChunkBytes: 4 << 10})
	data := random(100_000, 8)
	b, err := s.Open(t.Context(), put(t, s, data))
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for g := range 8 {
		work.Go(func() {
			buf := make([]byte, 777)
			for i := range 100 {
				off := (g*1234 + i*997) % (len(data) - len(buf))
				if _, err := b.ReadAt(buf, int64(off)); err != nil || !bytes.Equal(buf, data[off:off+len(buf)]) {
					t.Errorf("ReadAt(%d): %v", off, err)
					return
				}
			}
		})
	}
	work.Wait()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := b.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("ReadAt after Close = %v", err)
	}
}
