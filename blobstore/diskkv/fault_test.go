package diskkv

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func TestEveryFaultWhileTheFileIsMadeLeavesAWholeFileOrNone(t *testing.T) {
	ctx, data := context.Background(), numberOf(1)
	ref := blobref.Of(data)
	for name, fault := range map[string]func(*faultfs.FS, int){
		"a failure":   func(f *faultfs.FS, n int) { f.FailAt(n, errors.New("input/output error")) },
		"a full disk": (*faultfs.FS).FullAt,
		"a crash":     (*faultfs.FS).CrashAt,
	} {
		for n := 1; ; n++ {
			if n > 100 {
				t.Fatalf("%s never came to an end", name)
			}
			path := filepath.Join(t.TempDir(), "dir", "state.vscdb")
			// A log that somebody left is in the way.
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path+walSuffix, []byte("left"), 0o600); err != nil {
				t.Fatal(err)
			}
			fsys := faultfs.New(durable.OS)
			fault(fsys, n)
			s, damage, err := Open(ctx, path, Options{Sync: true, FS: fsys})
			if damage != nil {
				t.Fatal(damage)
			}
			stored := false
			if err == nil {
				stored = s.Set(ctx, ref, data) == nil
				_ = s.Close()
			}
			after, damage, err := Open(ctx, path, Options{})
			if err != nil || damage != nil {
				t.Fatalf("%s at operation %d: %v, %v", name, n, err, damage)
			}
			got, err := after.Get(ctx, ref)
			switch {
			case stored && (err != nil || !bytes.Equal(got, data)):
				t.Errorf("%s at operation %d: what was acknowledged is gone: %v", name, n, err)
			case err != nil && !errors.Is(err, blobstore.ErrNotFound):
				t.Errorf("%s at operation %d: %v", name, n, err)
			}
			if err := errors.Join(after.Set(ctx, ref, data), after.Close()); err != nil {
				t.Errorf("%s at operation %d: afterwards: %v", name, n, err)
			}
			if !fsys.Fired() {
				break
			}
		}
	}
}

func TestAFullDiskLosesNothingThatWasAcknowledged(t *testing.T) {
	ctx, s := t.Context(), openFile(t, Options{})
	w, _ := theWriter(t, s)
	limit := func(pages string) {
		t.Helper()
		if err := w.conn.query(ctx, func([]driver.Value) error { return nil }, "PRAGMA max_page_count = "+pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("100")
	var stored [][]byte
	for i := 0; ; i++ {
		data := bytes.Repeat(numberOf(i), 1000)
		err := s.Set(ctx, blobref.Of(data), data)
		if err != nil {
			if _, err := s.Get(ctx, blobref.Of(data)); !errors.Is(err, blobstore.ErrNotFound) {
				t.Errorf("a blob that was not stored is there: %v", err)
			}
			break
		}
		if stored = append(stored, data); i > 1000 {
			t.Fatal("the disk is not full")
		}
	}
	limit("1000000")
	more := bytes.Repeat([]byte("more"), 100_000)
	if err := s.Set(ctx, blobref.Of(more), more); err != nil {
		t.Fatal(err)
	}
	for _, data := range append(stored, more) {
		if got, err := s.Get(ctx, blobref.Of(data)); err != nil || !bytes.Equal(got, data) {
			t.Error(err)
		}
	}
}

func TestTheNameOfTheFileIsSynced(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	path := filepath.Join(dir, "a", "b", "state.vscdb")
	for name, opts := range map[string]Options{"by Flush": {}, "by Set": {Sync: true}} {
		fsys := faultfs.New(durable.OS)
		opts.FS = fsys
		s, _, err := Open(ctx, path, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Set(ctx, emptyRef, nil); err != nil {
			t.Fatal(err)
		}
		synced := func() (list []string) {
			for _, op := range fsys.Ops() {
				if strings.HasPrefix(op, "sync") {
					list = append(list, op)
				}
			}
			return list
		}
		if before := synced(); !opts.Sync && len(before) > 0 {
			t.Errorf("%s: %q were synced before", name, before)
		}
		if err := s.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		all := strings.Join(synced(), "\n") + "\n"
		for _, want := range []string{path, filepath.Dir(path), filepath.Dir(filepath.Dir(path)), dir} {
			if !strings.Contains(all, " "+want+"\n") {
				t.Errorf("%s: %s was not synced, but\n%s", name, want, all)
			}
		}
		n := len(fsys.Ops())
		if err := s.Flush(ctx); err != nil || len(fsys.Ops()) != n {
			t.Errorf("%s: a second Flush made %q (%v)", name, fsys.Ops()[n:], err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
			t.Fatal(err)
		}
	}
}

// faultyConn is a connection one of whose statements fails: before it does its work, or
// after, as an acknowledgement that is lost.
type faultyConn struct {
	driver.Conn
	n     *int // statements until the fault
	count int  // of statements that fail then
	after bool
}

var errFault = errors.New("input/output error")

func (c faultyConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	s, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	return faultyStmt{s, c}, err
}

type faultyStmt struct {
	driver.Stmt
	conn faultyConn
}

func (s faultyStmt) fails() bool {
	*s.conn.n--
	return *s.conn.n < 0 && *s.conn.n >= -s.conn.count
}

func (s faultyStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	fails := s.fails()
	if fails && !s.conn.after {
		return nil, errFault
	}
	result, err := s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
	if fails {
		return nil, errFault
	}
	return result, err
}

func (s faultyStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if s.fails() {
		return nil, errFault
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

func TestAStatementThatFailsLosesNothingThatWasAcknowledged(t *testing.T) {
	ctx := t.Context()
	for _, after := range []bool{false, true} {
		for _, count := range []int{1, 3} {
			for n, fired := 0, true; fired; n++ {
				s := openFile(t, Options{})
				w, _ := theWriter(t, s)
				left := n
				w.conn.raw = faultyConn{Conn: w.conn.raw, n: &left, count: count, after: after}
				acked := map[blobref.Ref][]byte{}
				note := func(err error, blobs ...[]byte) {
					if err != nil {
						if !errors.Is(err, errFault) {
							t.Errorf("statement %d: %v", n, err)
						}
						return
					}
					for _, data := range blobs {
						acked[blobref.Of(data)] = data
					}
				}
				note(s.Set(ctx, blobref.Of(numberOf(1)), numberOf(1)), numberOf(1))
				_, err := s.PutAll(ctx, [][]byte{numberOf(1), numberOf(2), numberOf(3)})
				note(err, numberOf(1), numberOf(2), numberOf(3))
				pointed := s.SetCheckpoint(ctx, "c", blobref.Ref{}, blobref.Of(numberOf(1)))
				note(pointed)
				note(s.Flush(ctx))
				note(s.SetUnverified(ctx, emptyRef, numberOf(4)))
				note(s.Set(ctx, blobref.Of(numberOf(5)), numberOf(5)), numberOf(5))
				fired = left < 0
				// Whatever failed, the store goes on.
				left = -count
				for i := range 6 {
					if err := s.Set(ctx, blobref.Of(numberOf(i)), numberOf(i)); err != nil {
						t.Fatalf("statement %d: afterwards: %v", n, err)
					}
				}
				if p, err := s.Checkpoint(ctx, "c"); pointed == nil && (err != nil || p.Ref != blobref.Of(numberOf(1))) {
					t.Errorf("statement %d: the pointer is %+v, %v", n, p, err)
				}
				for ref, data := range acked {
					if got, err := s.Get(ctx, ref); err != nil || !bytes.Equal(got, data) {
						t.Errorf("statement %d: what was acknowledged is gone: %v", n, err)
					}
				}
				for f, err := range s.Verify(ctx) {
					t.Errorf("statement %d: Verify found %+v, %v", n, f, err)
				}
				if n > 200 {
					t.Fatal("it never came to an end")
				}
			}
		}
	}
}
