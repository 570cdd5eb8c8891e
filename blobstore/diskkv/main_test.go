package diskkv_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore/diskkv"
)

// roleEnv makes this program another process of a test; fileEnv is the file it works on.
const (
	roleEnv = "AGENTRUN_TEST_DISKKV"
	fileEnv = "AGENTRUN_TEST_DISKKV_FILE"
)

func TestMain(m *testing.M) {
	role, file := os.Getenv(roleEnv), os.Getenv(fileEnv)
	if role == "" {
		os.Exit(m.Run())
	}
	err := fmt.Errorf("no such role: %s", role)
	switch role {
	case "owner":
		err = ownForeignFile(file)
	case "writer":
		err = writeUntilKilled(file)
	case "counter":
		err = countUp(file)
	case "locks":
		err = showLocks(file)
	case "interrupted":
		err = endInTheMiddle(file)
	case "reader":
		err = readUnprivileged(file)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // without closing anything
}

// other starts this program in another role.
func other(t *testing.T, role, file string) (*exec.Cmd, *bufio.Scanner, io.Writer) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, fileEnv+"="+file)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, bufio.NewScanner(out), in
}

// ownForeignFile is another program with its file in WAL mode: what it wrote last is in
// the log only.
func ownForeignFile(file string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)")
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("INSERT INTO cursorDiskKV VALUES(?, ?)", "agentKv:blob:"+blobref.Of(inLog).Hex(), inLog); err != nil {
		return err
	}
	fmt.Println("ready")
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if in.Text() == "close" {
			return db.Close()
		}
		if _, err := db.Exec("INSERT INTO cursorDiskKV VALUES(?, ?)", "agentKv:blob:"+blobref.Of(in.Bytes()).Hex(), in.Bytes()); err != nil {
			return err
		}
		fmt.Println("stored")
	}
	return nil
}

var inLog = []byte("this is in the log only")

// numbered is blob i of a writer.
func numbered(name string, i int) []byte {
	data := fmt.Appendf(nil, "%s %d ", name, i)
	for range i % 7 {
		data = append(data, make([]byte, 900)...)
	}
	return data
}

// writeUntilKilled stores blobs and points to them, and says so each time.
func writeUntilKilled(file string) error {
	ctx := context.Background()
	s, damage, err := diskkv.Open(ctx, file, diskkv.Options{})
	if err != nil {
		return err
	}
	if damage != nil {
		return damage
	}
	name := strconv.Itoa(os.Getpid())
	var old blobref.Ref
	for i := 0; ; i++ {
		data := numbered(name, i)
		ref := blobref.Of(data)
		if err := s.Set(ctx, ref, data); err != nil {
			return err
		}
		if err := s.SetCheckpoint(ctx, name, old, ref); err != nil {
			return err
		}
		old = ref
		fmt.Println(name, ref)
	}
}

// countUp moves one pointer on, among others who do so, 100 times.
func countUp(file string) error {
	ctx := context.Background()
	s, damage, err := diskkv.Open(ctx, file, diskkv.Options{})
	if err != nil {
		return err
	}
	if damage != nil {
		return damage
	}
	for n := 0; n < counts; {
		if err := countOne(ctx, s); err == nil {
			n++
		} else if !isConflict(err) {
			return err
		}
	}
	return s.Close()
}

// readUnprivileged reads a file that it may not write to.
func readUnprivileged(file string) error {
	ctx := context.Background()
	s, damage, err := diskkv.Open(ctx, file, diskkv.Options{})
	if err != nil {
		return err
	}
	if damage != nil {
		return damage
	}
	for info, err := range s.Walk(ctx) {
		if err != nil {
			return err
		}
		data, err := s.Get(ctx, info.Ref)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", data)
	}
	err = s.Set(ctx, blobref.Of(inLog), inLog)
	fmt.Println(s.ReadOnly(), isReadOnly(err))
	return s.Close()
}

// showLocks says whether another process has a lock on the bytes by which SQLite tells
// that a database is read.
func showLocks(file string) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: 0x40000002, Len: 510}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lock); err != nil {
		return err
	}
	fmt.Println(lock.Type != unix.F_UNLCK)
	return nil
}

// endInTheMiddle is another program that dies in a transaction which has reached its
// file already.
func endInTheMiddle(file string) error {
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=cache_size(1)")
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	for i := range 100 {
		if _, err := tx.Exec("INSERT INTO cursorDiskKV VALUES(?, zeroblob(10000))", fmt.Sprint(i)); err != nil {
			return err
		}
	}
	return nil
}
