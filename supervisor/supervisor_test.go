package supervisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/shell"
)

func TestMain(m *testing.M) {
	shell.Main()
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process sleeps for a second at its end
	if len(os.Args) == 3 && os.Args[0] == "supervisor" {
		serve(os.Args[1], os.Args[2])
		syscall.Kill(os.Getpid(), syscall.SIGKILL) // under the race detector an exit takes a second
	}
	if len(os.Args) == 3 && os.Args[0] == "taker" {
		taker(os.Args[1], os.Args[2])
	}
	goleak.VerifyTestMain(m)
}

// serve is a supervisor's process.
func serve(home, id string) {
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err == nil {
		err = Serve(context.Background(), Options{
			Session: id, Home: home, Linger: time.Millisecond, ShellIdle: time.Minute,
			Ready: func() { os.NewFile(3, "ready").WriteString("ready\n") },
			Open: func(ctx context.Context) (*session.Session, *artifacts.Dir, error) {
				info, err := m.Find(ctx, id)
				if err != nil {
					return nil, nil, err
				}
				s, err := m.Open(ctx, info.Path)
				if err != nil {
					return nil, nil, err
				}
				return s, artifacts.Open(s.ArtifactsDir(), artifacts.Options{LoggedMax: s.MaxArtifactID}), nil
			},
		})
	}
	if err != nil {
		os.NewFile(3, "ready").WriteString(err.Error() + "\n")
	}
}

func newClient(t *testing.T) (*Client, func() []Job) {
	t.Helper()
	home := t.TempDir()
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Create(t.Context(), home, session.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), entry.Custom{CustomType: "test"}); err != nil {
		t.Fatal(err)
	}
	path, id := s.Path(), s.ID()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := StopAll(context.Background(), home); err != nil {
			t.Error(err)
		}
	})
	return &Client{Home: home, Session: id, Argv: []string{"supervisor", home, id}}, func() []Job {
		s, err := m.View(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		jobs, err := Jobs(s.ID(), s.Entries(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
}

func TestANamedShellGoesOnForEveryClient(t *testing.T) {
	c, _ := newClient(t)
	script := func(text string) string {
		var out bytes.Buffer
		exit, err := (&Shell{Client: c, Name: "a", Cwd: "/"}).RunScript(t.Context(), &bash.Script{Text: text, Stdout: &out, Stderr: &out})
		if err != nil || exit.Code != 0 {
			t.Fatalf("%s: %+v, %v", text, exit, err)
		}
		return out.String()
	}
	script("x=1; cd /usr")
	if got := script("echo $x; pwd"); got != "1\n/usr\n" {
		t.Errorf("%q", got)
	}
	if got := script("head -c 1000000 /dev/zero"); len(got) != 1000000 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestAShellIsNotTakenForTheSuccessorOfOneThatBeganLater(t *testing.T) {
	began := func(run string) entry.Entry {
		t.Helper()
		raw, err := json.Marshal(map[string]any{"type": "custom", "customType": bash.StartType, "data": bash.Start{Run: run, Shell: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		return entry.New(raw, entry.Envelope{Type: entry.TypeCustom})
	}
	for _, of := range []struct {
		runs []string
		told bool
	}{
		{[]string{"mine", "later"}, false},
		{[]string{"earlier", "mine", "later"}, true},
	} {
		c := &Client{Entries: func(context.Context) iter.Seq2[entry.Entry, error] {
			return func(yield func(entry.Entry, error) bool) {
				for _, run := range of.runs {
					if !yield(began(run), nil) {
						return
					}
				}
			}
		}}
		var exit bash.Exit
		c.tellFresh(t.Context(), &exit, "shell", "a", "mine")
		if told := len(exit.Notes) > 0; told != of.told {
			t.Errorf("%s: told %v", of.runs, exit.Notes)
		}
	}
}

func TestWhatRunsUnderASupervisorDoesNotBelongToTheRunThatAskedForIt(t *testing.T) {
	t.Setenv("AGENTRUN_GUARD", "of the run")
	c, _ := newClient(t)
	for name, run := range map[string]func(out *bytes.Buffer) error{
		"in a shell": func(out *bytes.Buffer) error {
			_, err := (&Shell{Client: c, Name: "a", Cwd: "/"}).RunScript(t.Context(), &bash.Script{Text: "env", Stdout: out, Stderr: out})
			return err
		},
		"in the foreground": func(out *bytes.Buffer) error {
			res, _, err := c.Run(t.Context(), Foreground{Command: Command{Script: "env", Dir: "/"}})
			out.WriteString(res.Output)
			return err
		},
	} {
		var out bytes.Buffer
		if err := run(&out); err != nil || !strings.Contains(out.String(), "PATH=") || strings.Contains(out.String(), "of the run") {
			t.Errorf("%s: %v\n%s", name, err, &out)
		}
	}
}

// Bytes that are no UTF-8 come through JSON, which has none.
func TestScriptsVariablesAndPathsComeOverAsTheyAre(t *testing.T) {
	const odd = "\xff\xfe\xc3"
	c, jobs := newClient(t)
	dir := filepath.Join(t.TempDir(), odd)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ODD", odd)
	const script = `printf '%s|' "$ODD" "$GIVEN" "${PWD##*/}" ` + odd
	want := strings.Repeat(odd+"|", 4)
	sh := &Shell{Client: c, Name: odd, Cwd: dir}
	var out bytes.Buffer
	exit, err := sh.RunScript(t.Context(), &bash.Script{Text: script, Env: []string{"GIVEN=" + odd}, Stdout: &out, Stderr: &out})
	if err != nil || exit.Code != 0 || out.String() != want {
		t.Errorf("a named shell: %q, %+v, %v", out.String(), exit, err)
	}
	if got := sh.Directory(); got != dir {
		t.Errorf("the shell is in %q", got)
	}
	out.Reset()
	other := &Shell{Client: c, Name: "\uFFFD\uFFFD\uFFFD", Cwd: "/"}
	if _, err := other.RunScript(t.Context(), &bash.Script{Text: "pwd", Stdout: &out, Stderr: &out}); err != nil || out.String() != "/\n" {
		t.Errorf("another name is the same shell: %q, %v", out.String(), err)
	}
	res, _, err := c.Run(t.Context(), Foreground{Command: Command{Script: script + " >fg", Dir: dir, Env: []string{"GIVEN=" + odd}}})
	if got, _ := os.ReadFile(filepath.Join(dir, "fg")); err != nil || string(got) != want {
		t.Errorf("in the foreground: %q, %+v, %v", got, res.Exit, err)
	}
	id, err := c.Start(t.Context(), Command{Script: "read -r x; " + script + ` "$x" >job`, Dir: dir, Env: []string{"GIVEN=" + odd}})
	if err == nil {
		err = errors.Join(c.Send(t.Context(), id, odd+"\n", true), c.Wait(t.Context(), id))
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "job")); err != nil || string(got) != want+odd+"|" {
		t.Errorf("a job: %q, %+v, %v", got, jobs(), err)
	}
}

func TestStatesOfJobsAreTrue(t *testing.T) {
	c, jobs := newClient(t)
	start := func(script string) int64 {
		id, err := c.Start(t.Context(), Command{Script: script, Dir: "/"})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	exits, killed, lives := start("exit 7"), start("sleep 1000"), start("sleep 1000")
	if err := c.Wait(t.Context(), exits); err != nil {
		t.Error(err)
	}
	if err := c.Kill(t.Context(), killed, true); err != nil {
		t.Error(err)
	}
	if err := c.Kill(t.Context(), killed, false); !errors.Is(err, ErrNotRunning) {
		t.Errorf("killed twice: %v", err)
	}
	list := jobs()
	if len(list) != 3 || list[0].State != Exited || *list[0].ExitCode != 7 || list[1].State != Killed || list[2].State != Running || list[2].Number != lives {
		t.Errorf("%+v", list)
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if list := jobs(); list[2].State != Killed || list[2].Ended == nil {
		t.Errorf("stopped: %+v", list)
	}
	if err := c.Wait(t.Context(), lives); err != nil {
		t.Errorf("waiting for what has ended: %v", err)
	}
	if err := c.Send(t.Context(), lives, "x", false); !errors.Is(err, ErrNotRunning) {
		t.Errorf("sending to what has ended: %v", err)
	}
}

func TestAJobWithoutAnEndIsKilledOrLost(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[State]func(*bash.Owner){
		Running: func(*bash.Owner) {},
		Killed:  func(o *bash.Owner) { o.PID = dead.Process.Pid },
		Lost:    func(o *bash.Owner) { o.BootID = "of another start" },
	} {
		owner := process.Self()
		change(&owner)
		if got := stateOf(owner); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestNamesOfJobsAreChecked(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "17": 17, "job://3": 3} {
		if got, err := ParseID(s); err != nil || got != want {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "03", "+3", "job://", "job://../3", "99999999999999999999"} {
		if got, err := ParseID(s); err == nil {
			t.Errorf("%q is %d", s, got)
		}
	}
}

func TestWhatIsNoRequestIsAnswered(t *testing.T) {
	c, _ := newClient(t)
	if _, err := c.Start(t.Context(), Command{Script: "sleep 1000", Dir: "/"}); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"", "x", "{}", `{"version":1,"op":"dance"}`, `{"version":99,"op":"stop"}`} {
		got, err := c.connect()
		if err != nil {
			t.Fatal(err)
		}
		if err := got.send(frameRequest, []byte(q)); err != nil {
			t.Fatal(err)
		}
		if kind, _, err := got.receive(); kind != frameError || err != nil {
			t.Errorf("%q: %q, %v", q, kind, err)
		}
		got.Close()
	}
}

func TestALongHomeHasASocket(t *testing.T) {
	p := placeOf(t.TempDir()+strings.Repeat("/long", 50), "id")
	l, lock, err := p.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	defer l.Close()
	if _, _, err := p.listen(); !errors.Is(err, errTaken) {
		t.Errorf("twice: %v", err)
	}
	c, err := p.dial()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte("R\x00\x00\x00\x02{}"))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, payload, err := readFrame(bytes.NewReader(b))
		if err == nil && (kind != b[0] || len(payload) > len(b)-5) {
			t.Errorf("%q: %q, %d bytes", b, kind, len(payload))
		}
	})
}
