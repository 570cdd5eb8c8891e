package main

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/internal/s3test"
)

// blobsProgram runs the program as a shell would, with its home in dir.
func blobsProgram(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Args[0] = "agentrun"
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "AGENTRUN_HOME="+filepath.Join(dir, "home"), "GORACE=atexit_sleep_ms=0")
	out, err := cmd.Output()
	return string(out), err
}

// A token and a key are variables that the program keeps from itself, too.
func TestSecretsOfTheEnvironmentReachStores(t *testing.T) {
	server := httptest.NewServer(httpstore.NewHandler(memory.New(blobstore.Verified), httpstore.HandlerOptions{Token: "a-token"}))
	defer server.Close()
	service := s3test.Start(t)
	t.Setenv(httpstore.TokenEnv, "a-token")
	for name, url := range map[string]string{
		"a server": server.URL,
		"a bucket": "s3://" + service.Bucket + "/p?endpoint=" + service.Endpoint,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, []byte("a blob"), 0o600); err != nil {
			t.Fatal(err)
		}
		ref := blobref.Of([]byte("a blob")).String()
		if out, err := blobsProgram(t, dir, "blobs", "put", "--store", url, file); err != nil || out != ref+"\n" {
			t.Errorf("%s: put: %q, %v", name, out, err)
		}
		if out, err := blobsProgram(t, dir, "blobs", "get", "--store", url, ref); err != nil || out != "a blob" {
			t.Errorf("%s: get: %q, %v", name, out, err)
		}
		if out, err := blobsProgram(t, dir, "blobs", "ls", "--store", url); err != nil || !strings.HasPrefix(out, ref) {
			t.Errorf("%s: ls: %q, %v", name, out, err)
		}
	}
}
