package httpstore_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobstore/httpstore"
)

func TestATokenComesFromTheEnvironmentOrAFileOfItsOwner(t *testing.T) {
	name := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(name, []byte("from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(httpstore.TokenEnv, "")
	t.Setenv(httpstore.TokenFileEnv, "")
	if token, err := httpstore.TokenFromEnv(); token != "" || err != nil {
		t.Errorf("without variables: %q, %v", token, err)
	}
	t.Setenv(httpstore.TokenFileEnv, name)
	if token, err := httpstore.TokenFromEnv(); token != "from-a-file" || err != nil {
		t.Errorf("from a file: %q, %v", token, err)
	}
	t.Setenv(httpstore.TokenEnv, "from-a-variable")
	if token, err := httpstore.TokenFromEnv(); token != "from-a-variable" || err != nil {
		t.Errorf("from a variable: %q, %v", token, err)
	}
	if err := os.Chmod(name, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := httpstore.TokenFromFile(name); err == nil || !strings.Contains(err.Error(), "chmod 600") || strings.Contains(err.Error(), "from-a-file") {
		t.Errorf("a file that others may read: %v", err)
	}
	if _, err := httpstore.TokenFromFile(name + "x"); err == nil {
		t.Error("a file that is not there has a token")
	}
	if err := os.WriteFile(name+"e", []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httpstore.TokenFromFile(name + "e"); err == nil {
		t.Error("an empty file has a token")
	}
}
