package writethrough_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/faultstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/writethrough"
)

// childEnv holds what a re-executed test binary does, and childDir where.
const (
	childEnv = "WRITETHROUGH_TEST_CHILD"
	childDir = "WRITETHROUGH_TEST_DIR"
)

// TestKillWithWritesBehindLosesNothing has a process put 10,000 writes behind without a
// network, and kills it; then others that send them, each killed on its way; and lets
// the last one end.
func TestKillWithWritesBehindLosesNothing(t *testing.T) {
	behind, kills := 10_000, 3
	if testing.Short() {
		behind, kills = 1000, 1
	}
	if n, err := strconv.Atoi(os.Getenv("AGENTRUN_TEST_ROUNDS")); err == nil {
		kills = n
	}
	dir := t.TempDir()
	writer := startChild(t, dir, "TestWriteOfflineUntilKilled")
	for range behind {
		if !writer.out.Scan() {
			t.Fatalf("the writer ended by itself: %v", writer.out.Err())
		}
	}
	writer.kill(t)
	acked := behind
	for writer.out.Scan() {
		acked++ // said before the kill
	}

	for range kills {
		sender := startChild(t, dir, "TestSendUntilKilled")
		for range 1 + rand.IntN(behind/kills/2) {
			if !sender.out.Scan() {
				t.Fatalf("the sender ended by itself: %v", sender.out.Err())
			}
		}
		sender.kill(t)
	}

	remote := openCounting(t, dir)
	s := open(t, openDir(t, filepath.Join(dir, "local"), blobstore.Verified), remote, filepath.Join(dir, "queue"), writethrough.Options{})
	flush(t, s)
	if s.Queued() != 0 {
		t.Errorf("%d are still queued", s.Queued())
	}
	for i := range acked {
		if !has(t, remote.Store, i) {
			t.Fatalf("blob %d was acknowledged and has not arrived", i)
		}
	}
	for ref, n := range remote.arrivals(t) {
		if n > 1 {
			t.Errorf("%v arrived %d times", ref, n)
		}
	}
}

// counting is a remote that writes down each arrival where a kill does not reach.
type counting struct {
	blobstore.Store
	name string
	mu   sync.Mutex // held while a line is written
	file *os.File
	tell bool
}

func openCounting(t testing.TB, dir string) *counting {
	t.Helper()
	name := filepath.Join(dir, "arrivals")
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &counting{Store: openDir(t, filepath.Join(dir, "remote"), blobstore.Verified), name: name, file: file}
}

func (c *counting) Stat(ctx context.Context, ref blobref.Ref) (blobstore.Info, error) {
	return blobstore.Stat(ctx, c.Store, ref)
}

func (c *counting) Set(ctx context.Context, ref blobref.Ref, data []byte) error {
	if err := c.Store.Set(ctx, ref, data); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintln(c.file, ref)
	if c.tell {
		fmt.Println(ref)
	}
	return err
}

func (c *counting) arrivals(t *testing.T) map[blobref.Ref]int {
	t.Helper()
	f, err := os.Open(c.name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	count := make(map[blobref.Ref]int)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		ref, err := blobref.Parse(lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		count[ref]++
	}
	return count
}

func TestWriteOfflineUntilKilled(t *testing.T) {
	dir := childPlace(t)
	remote := faultstore.New(memory.New(blobstore.Verified))
	remote.Plan(offline)
	s := open(t, openDir(t, filepath.Join(dir, "local"), blobstore.Verified), remote, filepath.Join(dir, "queue"), writethrough.Options{})
	for i := 0; ; i++ {
		set(t, s, i)
		if _, err := fmt.Println(i); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSendUntilKilled(t *testing.T) {
	dir := childPlace(t)
	remote := openCounting(t, dir)
	remote.tell = true
	open(t, openDir(t, filepath.Join(dir, "local"), blobstore.Verified), remote, filepath.Join(dir, "queue"), writethrough.Options{})
	time.Sleep(time.Hour) // until the kill
}

func childPlace(t *testing.T) string {
	if os.Getenv(childEnv) != t.Name() {
		t.Skip("runs only as a child of another test")
	}
	return os.Getenv(childDir)
}

type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, dir, test string) child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+test, childDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return child{cmd, bufio.NewScanner(out)}
}

func (c child) kill(t *testing.T) {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if state, err := c.cmd.Process.Wait(); err != nil || state.Exited() {
		t.Fatalf("the child was not killed: %v, %v", state, err)
	}
}

// TestAnotherProcessSendsWhatThisOneStores has a child store blobs while this process
// is the one that sends, and the child wait for them.
func TestAnotherProcessSendsWhatThisOneStores(t *testing.T) {
	dir := t.TempDir()
	remote := openCounting(t, dir)
	s := open(t, openDir(t, filepath.Join(dir, "local"), blobstore.Verified), remote, filepath.Join(dir, "queue"), writethrough.Options{})
	set(t, s, 0)
	flush(t, s) // so this one sends
	writer := startChild(t, dir, "TestStoreAndFlush")
	var said string
	for writer.out.Scan() {
		said += writer.out.Text() + "\n"
	}
	if err := writer.cmd.Wait(); err != nil {
		t.Fatalf("the child failed: %v\n%s", err, said)
	}
	for i := range 200 {
		if !has(t, remote.Store, i) {
			t.Fatalf("blob %d was flushed and has not arrived", i)
		}
	}
	for ref, n := range remote.arrivals(t) {
		if n != 1 {
			t.Errorf("%v arrived %d times", ref, n)
		}
	}
}

func TestStoreAndFlush(t *testing.T) {
	dir := childPlace(t)
	// Its own way to the remote is never used.
	remote := faultstore.New(openDir(t, filepath.Join(dir, "remote"), blobstore.Verified))
	remote.Plan(faultstore.Always(faultstore.Fault{Before: faultstore.ErrInjected}, faultstore.Set, faultstore.Stat))
	s := open(t, openDir(t, filepath.Join(dir, "local"), blobstore.Verified), remote, filepath.Join(dir, "queue"), writethrough.Options{})
	for i := range 200 {
		set(t, s, i)
	}
	flush(t, s)
	if n := len(sets(remote)); n > 0 {
		t.Errorf("%d blobs were sent from here", n)
	}
}
