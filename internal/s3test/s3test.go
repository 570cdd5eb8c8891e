// Package s3test starts an S3 service for tests: versitygw, which keeps objects in a
// directory.
package s3test

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Program names the file of versitygw where it is not in PATH.
const Program = "AGENTRUN_VERSITYGW"

// Server is a service that ends with its test.
type Server struct {
	Endpoint string
	Bucket   string // one that is there, and empty
	Dir      string // where its objects are, one file each
}

// Start starts a service on a port of this machine, and sets the variables of the
// environment that its clients take their credentials from. Without the program it
// skips the test.
func Start(t *testing.T) Server {
	t.Helper()
	program := os.Getenv(Program)
	if program == "" {
		var err error
		if program, err = exec.LookPath("versitygw"); err != nil {
			t.Skipf("versitygw is not installed; build it with .ci/run s3, or name it in %s", Program)
		}
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test-secret")
	t.Setenv("AWS_SESSION_TOKEN", "")
	s := Server{Bucket: "bucket", Dir: filepath.Join(t.TempDir(), "s3", "bucket")}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	// Another process may take a port between its choice and its use.
	for try := 0; ; try++ {
		address, up, said := start(t, program, filepath.Dir(s.Dir))
		if up {
			s.Endpoint = "http://" + address
			return s
		}
		if try == 3 {
			t.Fatalf("versitygw does not start: %s", said)
		}
	}
}

// start starts a service and waits until it answers or ends.
func start(t *testing.T, program, dir string) (address string, up bool, said string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = l.Addr().String()
	l.Close()
	var out bytes.Buffer
	cmd := exec.Command(program, "--port", address, "--quiet", "--keep-alive", "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=test", "ROOT_SECRET_KEY=test-secret")
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	stop := func() {
		_ = cmd.Process.Kill()
		<-ended
	}
	for tick := time.Tick(10 * time.Millisecond); ; {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			t.Cleanup(stop)
			return address, true, ""
		}
		select {
		case <-ended:
			return address, false, strings.TrimSpace(out.String())
		case <-t.Context().Done():
			stop()
			return address, false, "the test ended"
		case <-tick: // nobody tells when a port is open
		}
	}
}

// File is where the service keeps the object of that key.
func (s Server) File(key string) string { return filepath.Join(s.Dir, filepath.FromSlash(key)) }

// Objects counts the files of the bucket.
func (s Server) Objects(t *testing.T) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(s.Dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
