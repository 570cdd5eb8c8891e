package ssh

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestATextOfOneLineBecomesTheTextAgainInEveryShell(t *testing.T) {
	var all []byte
	for i := 1; i < 256; i++ {
		all = append(all, byte(i), '\\', byte(i))
	}
	for _, shell := range []string{"sh", "dash", "bash", "busybox sh", "zsh", "ksh", "mksh"} {
		argv := strings.Fields(shell)
		if _, err := exec.LookPath(argv[0]); err != nil {
			continue
		}
		var line bytes.Buffer
		encode(&line, string(all))
		if i := bytes.IndexFunc(line.Bytes(), func(r rune) bool { return r < ' ' || r > '~' }); i >= 0 {
			t.Fatalf("byte %d of the line is no letter of ASCII", i)
		}
		cmd := exec.Command(argv[0], append(argv[1:], "-c", `IFS= read -r a && printf %b "$a" && cat`)...)
		cmd.Stdin = strings.NewReader(line.String() + "\nrest")
		out, err := cmd.Output()
		if want := string(all) + "rest"; err != nil || string(out) != want {
			t.Errorf("%s: %v, %q", shell, err, out)
		}
	}
}

func TestTheProgramHoldsNoCommentAndNoLineOfNothing(t *testing.T) {
	for line := range strings.Lines(program()) {
		if line == "\n" || line[0] == '#' || line[0] == '\t' {
			t.Errorf("%q", line)
		}
	}
	if !strings.HasSuffix(program(), "exit \"$status\"\n") {
		t.Error("it has no end")
	}
	for _, shell := range []string{"sh", "bash"} {
		if out, err := exec.Command(shell, "-n", "-c", program()).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", shell, out)
		}
	}
}

// TestTheLinesOfTheProgramAreTakenOut also looks at output that almost has one, in pieces of any size.
func TestTheLinesOfTheProgramAreTakenOut(t *testing.T) {
	const marker = "\x1e0123 "
	rapid.Check(t, func(r *rapid.T) {
		var in, want bytes.Buffer
		begun := false
		for range rapid.IntRange(0, 12).Draw(r, "parts") {
			switch rapid.IntRange(0, 3).Draw(r, "kind") {
			case 0:
				part := rapid.SampledFrom([]string{"\x1e", "\x1e01", "\x1e0123", "\x1e\x1e0", "\n", "\x1e0124 x\n"}).Draw(r, "almost")
				in.WriteString(part)
				want.WriteString(part)
				if in.Len() > 0 && strings.HasSuffix(in.String(), "\x1e0123") {
					in.WriteString("!") // or what follows makes a line of it
					want.WriteString("!")
				}
			case 1:
				in.WriteString(marker + "begun\n")
				begun = true
			default:
				part := rapid.StringMatching(`[a-z\n]{0,9}`).Draw(r, "text")
				in.WriteString(part)
				want.WriteString(part)
			}
		}
		var got bytes.Buffer
		e := newEvents()
		s := &stream{events: e, marker: []byte(marker), to: func(b []byte) error { got.Write(b); return nil }}
		for data := in.Bytes(); len(data) > 0; {
			n := rapid.IntRange(1, len(data)).Draw(r, "piece")
			if m, err := s.Write(data[:n]); m != n || err != nil {
				r.Fatalf("%d of %d, %v", m, n, err)
			}
			data = data[n:]
		}
		if err := s.flush(); err != nil {
			r.Fatal(err)
		}
		if got.String() != want.String() || is(e.begun) != begun {
			r.Errorf("%q became %q, want %q; begun %v, want %v", in.String(), got.String(), want.String(), is(e.begun), begun)
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("a\x1e0123 end 255 cwd\nb\x1e0123 eof\n\x1e0123 left 1 2\n\x1e0123 end\n"), 3)
	f.Add([]byte("\x1e0123 end 99999\n\x1e0123 \n\x1e0123"), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		e := newEvents()
		n := 0
		s := &stream{events: e, marker: []byte("\x1e0123 "), to: func(b []byte) error { n += len(b); return nil }}
		for size = max(size, 1); len(data) > 0; data = data[min(size, len(data)):] {
			if _, err := s.Write(data[:min(size, len(data))]); err != nil {
				t.Fatal(err)
			}
			if len(s.held) > maxTold+size {
				t.Fatalf("%d bytes are held", len(s.held))
			}
		}
		if err := s.flush(); err != nil || e.status < 0 || e.status > 255 {
			t.Error(err, e.status)
		}
	})
}

func TestADirectoryThatOthersSeeIsRefused(t *testing.T) {
	base := t.TempDir()
	for _, tt := range []struct {
		name string
		make func(dir string) error
		want string
	}{
		{"open to others", func(dir string) error { return os.Mkdir(dir, 0o755) }, "is open to other users"},
		{"a link", func(dir string) error { return os.Symlink(base, dir) }, "is no directory"},
		{"a file", func(dir string) error { return os.WriteFile(dir, nil, 0o600) }, "directory"},
		{"too long", func(string) error { return nil }, "cannot hold the sockets"},
		{"odd", func(string) error { return nil }, "cannot hold the sockets"},
	} {
		dir, err := os.MkdirTemp("/tmp", "agentrun-dir")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		switch dir = filepath.Join(dir, "d"); tt.name {
		case "too long":
			dir = filepath.Join(dir, strings.Repeat("x", 80))
		case "odd":
			dir += " e"
		}
		if err := tt.make(dir); err != nil {
			t.Fatal(err)
		}
		_, err = (&Client{o: Options{Dir: dir}}).directory()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestTheNameOfASocketFitsBesideWhatSSHAppends(t *testing.T) {
	dir := "/tmp/" + strings.Repeat("x", maxDir-len("/tmp/"))
	defer os.RemoveAll(dir)
	w, err := (&Client{o: Options{Dir: dir}}).way(Host{name: "h"})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.socket + ".0123456789abcdef"); n >= 108 {
		t.Errorf("%d bytes", n)
	}
}

func TestVariablesAndDirectoriesAreQuoted(t *testing.T) {
	for _, bad := range []string{"A B=1", "1A=2", "A;id=1", "A", "=x", "A=\x00"} {
		if got, err := before([]string{bad}, ""); err == nil {
			t.Errorf("%q: %q", bad, got)
		}
	}
	dir := t.TempDir()
	odd := filepath.Join(dir, `it's "$HOME" \ -x`+"\n;id")
	if err := os.MkdirAll(filepath.Join(odd, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{odd: odd, "~": dir, "~/": dir, "~/" + filepath.Base(odd) + "/sub": odd + "/sub"} {
		text, err := before([]string{"V=it's $(id)"}, in)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", text+"printf '%s|%s' \"$V\" \"$PWD\"")
		cmd.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.Output(); err != nil || strings.TrimSuffix(string(out), "/") != fmt.Sprintf("it's $(id)|%s", want) {
			t.Errorf("%q: %v, %q", in, err, out)
		}
	}
}
