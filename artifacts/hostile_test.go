package artifacts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLinksAndOtherOddFilesAreRefused(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "must not be read or written")
	link := func(t *testing.T, to, name string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	read := func(t *testing.T, d *Dir) error {
		r, err := d.Open(t.Context(), 0)
		if err == nil {
			r.Close()
		}
		return err
	}
	create := func(t *testing.T, d *Dir) error {
		f, err := d.Create(t.Context(), "bash", Provenance{})
		if err == nil {
			f.Close()
		}
		return err
	}
	cases := []struct {
		name string
		make func(t *testing.T, path string)
		do   func(t *testing.T, d *Dir) error
		want string
	}{
		{"a link as an artifact", func(t *testing.T, p string) { link(t, secret, p+"/0.bash.log") }, read, "is not a regular file"},
		{"a link as an artifact with provenance", func(t *testing.T, p string) {
			write(t, Open(p, Options{}), "bash", "x")
			if err := os.Remove(p + "/0.bash.log"); err != nil {
				t.Fatal(err)
			}
			link(t, secret, p+"/0.bash.log")
		}, read, "is not a regular file"},
		{"a FIFO as an artifact", func(t *testing.T, p string) {
			if err := errors.Join(os.MkdirAll(p, 0o700), unix.Mkfifo(p+"/0.bash.log", 0o600)); err != nil {
				t.Fatal(err)
			}
		}, read, "is not a regular file"},
		{"a directory as an artifact", func(t *testing.T, p string) { put(t, p+"/0.dir.log/x", "") }, read, "is not a regular file"},
		{"a link as the directory", func(t *testing.T, p string) { link(t, t.TempDir(), p) }, create, "is not a directory"},
		{"a file as the directory", func(t *testing.T, p string) { put(t, p, "x") }, create, "in the way"},
		{"a link as the index directory", func(t *testing.T, p string) { link(t, t.TempDir(), p+"/.index") }, create, "is not a directory"},
		{"a link as the lock", func(t *testing.T, p string) { link(t, secret, p+"/.index/lock") }, create, "symbolic link"},
		{"a link as the counters", func(t *testing.T, p string) { link(t, secret, p+"/.index/next") }, create, "symbolic link"},
		{
			"a link as an agent's output", func(t *testing.T, p string) { link(t, secret, p+"/Anna.md") },
			func(t *testing.T, d *Dir) error { return readAgent(t, d, "Anna") }, "Not found: Anna",
		},
		{"a link as a folder of nested agents", func(t *testing.T, p string) {
			outside := t.TempDir()
			put(t, outside+"/Anna.Bob.md", "x")
			link(t, outside, p+"/Anna")
		}, func(t *testing.T, d *Dir) error { return readAgent(t, d, "Anna.Bob") }, "Not found: Anna.Bob"},
		{"a link as the JSON beside an output", func(t *testing.T, p string) {
			put(t, p+"/Anna.md", "x")
			link(t, secret, p+"/Anna.json")
		}, func(t *testing.T, d *Dir) error {
			_, _, err := d.AgentJSON(t.Context(), agentID(t, "Anna"), 0)
			return err
		}, "symbolic link"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			c.make(t, path)
			if err := c.do(t, Open(path, Options{})); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if data, err := os.ReadFile(secret); err != nil || string(data) != "must not be read or written" {
				t.Errorf("the target of the link is %q, %v", data, err)
			}
		})
	}
}

func TestALinkInTheWayOfANewArtifactIsPassedOver(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "x")
	d, path := tempDir(t)
	write(t, d, "bash", "0")
	for _, name := range []string{"1.bash.log", ".artifact-2.json"} {
		if err := os.Symlink(secret, filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if f := write(t, d, "bash", "3"); f.ID() != 3 {
		t.Errorf("got number %d, want 3", f.ID())
	}
	if data, err := os.ReadFile(secret); err != nil || string(data) != "x" {
		t.Errorf("the target is %q, %v", data, err)
	}
}

func TestHostileProvenanceLeadsNowhereElse(t *testing.T) {
	d, path := tempDir(t)
	put(t, filepath.Join(filepath.Dir(path), "outside.log"), "outside")
	for _, tool := range []string{"/../../outside", "../outside", "a.b", ""} {
		put(t, filepath.Join(path, ".artifact-0.json"), `{"tool":"`+tool+`","pid":1}`)
		if info, err := d.Lookup(t.Context(), 0); err == nil {
			t.Errorf("tool %q: found %s", tool, info.Path)
		}
	}
}

func TestCleanTool(t *testing.T) {
	for in, want := range map[string]string{
		"bash": "bash", "": "tool", "../../etc": "etc", "___": "tool", "mcp: do it!": "mcp_do_it", "日本": "tool",
		"bash-original": "bash-original", strings.Repeat("a", 100): strings.Repeat("a", 64),
		strings.Repeat("a", 63) + "/b": strings.Repeat("a", 63), "a\x00b": "a_b", "a/../b": "a_b",
	} {
		if got := CleanTool(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"0.bash.log", "7.md", "0-Parent.1-Child.v2.md", "Anna.jsonl", ".artifact-3.json", ".agent-0-X.json", "5.missing", "01.bash.log", "v2.md", "8.bash.log.tmp-1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if id, tool, ok := parseLog(name); ok {
			if logName(id, tool) != name {
				t.Fatalf("%q is not the name of artifact %d of %s", name, id, tool)
			}
			if n, used := parseNumbered(name); !used || n != id {
				t.Fatalf("%q does not use up number %d", name, id)
			}
		}
		if id, version, kind, ok := parseAgentFile(name); ok {
			if _, err := ParseAgentID(id.String()); err != nil || version < 1 {
				t.Fatalf("%q gave id %q version %d", name, id, version)
			}
			for _, e := range agentExt {
				if e.kind == kind && agentFile(id, version, e.ext) != name {
					t.Fatalf("%q is not the name of its agent's file", name)
				}
			}
			if len(agentFile(id, 999_999, ".jsonl"))+len(".tmp--") > 240 {
				t.Fatalf("the files of %q have names that are too long", id)
			}
		}
		if tool := CleanTool(name); CleanTool(tool) != tool || tool == "" || len(tool) > maxTool {
			t.Fatalf("cleaning %q gave %q", name, tool)
		}
	})
}

func FuzzParseAgentRef(f *testing.F) {
	for _, s := range []string{"0-Parent.1-Child", "Anna.v2", "v1", "a.v0", "a.v01", "a..b", "../x", "Anna-2", "A.v2.v3", "a.v99999999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, version, err := ParseAgentRef(s)
		if err != nil {
			return
		}
		if strings.ContainsAny(s, "/\\\x00% ") || strings.Contains(s, "..") || strings.HasPrefix(s, ".") {
			t.Fatalf("%q was let through", s)
		}
		back := id.String()
		if version > 0 {
			back = strings.TrimSuffix(agentFile(id, version, ""), "")
			if version == 1 {
				back += ".v1"
			}
		}
		if back != s {
			t.Fatalf("%q came back as %q", s, back)
		}
	})
}
