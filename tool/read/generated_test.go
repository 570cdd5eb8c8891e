package read

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/tool/workspace"
)

func TestAFileThatTheKernelMakesIsRead(t *testing.T) {
	w, err := workspace.Open(workspace.Options{Dir: t.TempDir(), Roots: []string{"/"}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{"/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		want, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			t.Logf("%s is not there: it is not looked at", name)
			continue
		}
		for _, files := range []*workspace.Workspace{nil, w} {
			p, err := Read(t.Context(), nil, name, Options{Files: files})
			if err != nil || p.Text != string(want) || p.Lines != 1 || p.Size != int64(len(want)) {
				t.Errorf("%s: %+v, %v, want %q", name, p, err, want)
			}
		}
		var raw bytes.Buffer
		if _, err := Copy(t.Context(), &raw, nil, name, Options{}); err != nil || raw.String() != string(want) {
			t.Errorf("%s, raw: %q, %v", name, raw.String(), err)
		}
	}
	p, err := Read(t.Context(), nil, "/proc/self/status:1-2", Options{})
	if err != nil || !strings.HasPrefix(p.Text, "Name:") || p.LastLine != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := Read(t.Context(), nil, "/proc/self/mem", Options{}); err == nil || !errors.Is(err, unix.EIO) {
		t.Errorf("memory at 0: %v", err)
	}
}

func TestAFileWithoutAnEndIsReadInPart(t *testing.T) {
	defer func(was int) { maxGenerated = was }(maxGenerated)
	maxGenerated = 64 << 10
	p, err := Read(t.Context(), nil, "/proc/self/pagemap", Options{})
	if err != nil || p.Size != 64<<10 || !strings.Contains(strings.Join(p.Notes, ". "), "only its first 64.0 KB are here") {
		t.Errorf("%d bytes, %q, %v", p.Size, p.Notes, err)
	}
	n, err := Copy(t.Context(), io.Discard, nil, "/proc/self/pagemap", Options{})
	if n != 64<<10 || err == nil || !strings.Contains(err.Error(), "/proc/self/pagemap goes on") {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestAnEmptyFileIsAFile(t *testing.T) {
	name := put(t, "empty", nil)
	seen := false
	p, err := Read(t.Context(), nil, name, Options{Seen: func(_ string, size int64, _ uint32) { seen = size == 0 }})
	if err != nil || p.Text != "" || !seen {
		t.Errorf("%+v, %v, seen: %v", p, err, seen)
	}
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	fifo, socket := filepath.Join(dir, "fifo"), filepath.Join(dir, "socket")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, kind := range map[string]string{fifo: "a FIFO", socket: "a socket", "/dev/zero": "a device"} {
		if _, err := Read(t.Context(), nil, name, Options{}); err == nil || err.Error() != name+" is "+kind+": name a regular file" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
