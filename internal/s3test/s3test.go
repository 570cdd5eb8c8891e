// Package s3test starts an S3 service for tests: versitygw, which keeps objects in a
// directory.
package s3test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/s3"
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
	// The service of another test that took the port knows neither.
	key, secret := rand.Text(), rand.Text()
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_SESSION_TOKEN", "")
	dir := t.TempDir()
	s := Server{Bucket: "bucket", Dir: filepath.Join(dir, "bucket")}
	for try := 0; ; try++ {
		address, err := start(t, program, dir, key, secret, s.Bucket)
		if err == nil {
			s.Endpoint = "http://" + address
			return s
		}
		if try == 5 {
			t.Fatalf("starting versitygw: %v", err)
		}
	}
}

// start starts a service, waits until it answers, and makes a bucket.
func start(t *testing.T, program, dir, key, secret, bucket string) (address string, err error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	l.Close()
	who := s3.Credentials{AccessKeyID: key, SecretAccessKey: secret}
	client := s3.Client{
		Endpoint: &url.URL{Scheme: "http", Host: address}, Region: "us-east-1", Transport: &http.Transport{},
		Credentials: func(context.Context) (s3.Credentials, error) { return who, nil },
	}
	var out bytes.Buffer
	cmd := exec.Command(program, "--port", address, "--quiet", "--keep-alive", "posix", dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+key, "ROOT_SECRET_KEY="+secret)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
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
		err := client.MakeBucket(t.Context(), bucket)
		if err == nil {
			t.Cleanup(stop)
			return address, nil
		}
		if answer := (*s3.Error)(nil); errors.As(err, &answer) {
			stop()
			return "", fmt.Errorf("%w: %s", err, &out)
		}
		select {
		case <-ended:
			return "", fmt.Errorf("it ended: %s", &out)
		case <-t.Context().Done():
			stop()
			return "", t.Context().Err()
		case <-tick: // nobody tells when a port is open
		}
	}
}

// File is where the service keeps the object of that key.
func (s Server) File(key string) string { return filepath.Join(s.Dir, filepath.FromSlash(key)) }
