package interop_test

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// installEnv names the directory with the node_modules of both programs.
const installEnv = "AGENTRUN_INTEROP_DIR"

//go:embed js/*.mjs
var scripts embed.FS

// scratch is where everything of a test run lies. Its three parts matter: session
// directories are named by where a working directory is, below the user's home,
// below the directory for temporary files, or elsewhere.
var scratch struct{ home, temp, elsewhere, js string }

func TestMain(m *testing.M) {
	os.Exit(func() int {
		root, err := os.MkdirTemp("", "agentrun-interop-")
		if err == nil {
			defer os.RemoveAll(root)
			root, err = filepath.EvalSymlinks(root)
		}
		if err == nil {
			err = prepare(root)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "preparing the interop check:", err)
			return 1
		}
		return m.Run()
	}())
}

func prepare(root string) error {
	for name, dir := range map[string]*string{
		"home": &scratch.home, "tmp": &scratch.temp, "elsewhere": &scratch.elsewhere, "js": &scratch.js,
	} {
		*dir = filepath.Join(root, name)
		if err := os.Mkdir(*dir, 0o700); err != nil {
			return err
		}
	}
	// This process must name session directories by the same roots as the programs.
	for name, value := range map[string]string{"HOME": scratch.home, "TMPDIR": scratch.temp} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	files, err := scripts.ReadDir("js")
	if err != nil {
		return err
	}
	for _, f := range files {
		data, err := scripts.ReadFile("js/" + f.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(scratch.js, f.Name()), data, 0o600)
		}
		if err != nil {
			return err
		}
	}
	// Node and bun look for packages beside the script that asks for them.
	if dir := os.Getenv(installEnv); dir != "" {
		if dir, err = filepath.Abs(dir); err == nil {
			err = os.Symlink(filepath.Join(dir, "node_modules"), filepath.Join(scratch.js, "node_modules"))
		}
	}
	return err
}

// program is one that shares our session format.
type program struct {
	name    string
	command []string
	// readsBlobs is set for oh-my-pi, which puts images back from the blobs of its
	// agent directory. pi shows the reference in the image's place.
	readsBlobs bool
	// rewrites is set for oh-my-pi, which replaces a file by what it has in memory
	// when it renames one that does not begin with its title slot.
	rewrites bool
	// titlesAreEntries is set for pi, which knows a title from session_info entries
	// only.
	titlesAreEntries bool
	// repeats is set for pi: when it opens a file in which no model has answered
	// yet, its first entry that counts writes the whole file again, behind itself.
	repeats bool
}

var (
	pi  = program{name: "pi", command: []string{"node", "pi.mjs"}, titlesAreEntries: true, repeats: true}
	omp = program{
		name: "oh-my-pi", command: []string{"node_modules/.bin/bun", "--no-install", "omp.mjs"},
		readsBlobs: true, rewrites: true,
	}
	programs = []program{pi, omp}
)

// process is a running program that does what it is told.
type process struct {
	t      *testing.T
	name   string
	in     *json.Encoder
	out    *bufio.Scanner
	stderr *bytes.Buffer
	stop   func() error
}

// step is something to do, as js/steps.mjs lists it.
type step map[string]any

// start runs p on an agent directory until the test ends or stop is called.
func (p program) start(t *testing.T, agentDir string) *process {
	t.Helper()
	if os.Getenv(installEnv) == "" {
		t.Skipf("%s is not set: it names a directory where npm has installed the programs (.ci/run does that)", installEnv)
	}
	cmd := exec.Command(p.command[0], p.command[1:]...)
	if p.command[0] != "node" {
		cmd.Path = filepath.Join(scratch.js, p.command[0])
	}
	cmd.Dir = scratch.js
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + scratch.home, "TMPDIR=" + scratch.temp,
		"PI_CODING_AGENT_DIR=" + agentDir, "TERM=dumb", "NO_COLOR=1",
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	q := &process{t: t, name: p.name, in: json.NewEncoder(in), out: bufio.NewScanner(out), stderr: new(bytes.Buffer)}
	q.out.Buffer(nil, 16<<20)
	cmd.Stderr = q.stderr
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting %s: %v", p.name, err)
	}
	// A program that hangs fails the test instead of waiting for ever.
	watchdog := time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
	stopped := false
	q.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		defer watchdog.Stop()
		in.Close()
		return cmd.Wait()
	}
	t.Cleanup(func() {
		if err := q.stop(); err != nil {
			t.Errorf("%s: %v\n%s", p.name, err, q.stderr)
		}
	})
	return q
}

// ask has the program do one step and decodes its answer.
func ask[T any](q *process, s step) T {
	q.t.Helper()
	var answer T
	if err := q.in.Encode(s); err != nil {
		q.stop()
		q.t.Fatalf("telling %s to %v: %v\n%s", q.name, s["do"], err, q.stderr)
	}
	if !q.out.Scan() {
		err := q.stop()
		q.t.Fatalf("%s ended when told to %v: %v\n%s", q.name, s["do"], err, q.stderr)
	}
	if err := json.Unmarshal(q.out.Bytes(), &answer); err != nil {
		q.t.Fatalf("%s answered %q to %v: %v", q.name, q.out.Bytes(), s["do"], err)
	}
	return answer
}

// do has the program do some steps and returns how the session then looks to it.
func (q *process) do(steps ...step) view {
	q.t.Helper()
	var v view
	for _, s := range steps {
		v = ask[view](q, s)
	}
	return v
}

// end is do, then the end of the process.
func (q *process) end(steps ...step) view {
	q.t.Helper()
	v := q.do(append(slices.Clip(steps), step{"do": "close"})...)
	if err := q.stop(); err != nil {
		q.t.Fatalf("%s: %v\n%s", q.name, err, q.stderr)
	}
	return v
}
