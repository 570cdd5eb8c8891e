package hook_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/hook"
	"github.com/agentrun/agentrun/internal/shim"
	"github.com/agentrun/agentrun/tool"
)

func TestMain(m *testing.M) {
	shim.Main()
	goleak.VerifyTestMain(m)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// runner runs one hook, and keeps what is reported.
func runner(t *testing.T, h hook.Hook) (*hook.Runner, func() string) {
	t.Helper()
	var mu sync.Mutex
	var failures []string
	if h.Timeout == 0 {
		h.Timeout = hook.Duration(time.Minute)
	}
	h.Source = "here"
	r := &hook.Runner{Hooks: []hook.Hook{h}, Session: "s1", Dir: t.TempDir(), Report: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, err.Error())
	}}
	return r, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(failures, "\n")
	}
}

func TestBeforeATool(t *testing.T) {
	call := agent.Call{Agent: "main", ID: "c1", Tool: "bash", Arguments: []byte(`{"command":"rm"}`)}
	for name, test := range map[string]struct {
		hook     hook.Hook
		denied   string // "" for a call that is made
		reported string
	}{
		"a hook that says nothing leaves the call alone": {hook.Hook{Command: "true"}, "", ""},
		"status 2 denies with what is on standard error": {hook.Hook{Command: "echo not here >&2; exit 2"}, "not here", ""},
		"an answer denies":                         {hook.Hook{Command: `echo '{"deny":"no rm"}'`}, "no rm", ""},
		"status 2 needs no reason":                 {hook.Hook{Command: "exit 2"}, "gives no reason", ""},
		"a hook sees the call":                     {hook.Hook{Command: `grep -q '"command":"rm"' && exit 2`}, "gives no reason", ""},
		"a hook of another tool is not called":     {hook.Hook{Tool: "edit", Command: "exit 2"}, "", ""},
		"a pattern names tools":                    {hook.Hook{Tool: "ba*", Command: "exit 2"}, "gives no reason", ""},
		"another status is a failure":              {hook.Hook{Command: "echo ouch >&2; exit 3"}, "", `exit status is 3: "ouch"`},
		"a failure of a required hook denies":      {hook.Hook{Command: "exit 3", Required: true}, "is required, and failed", "exit status is 3"},
		"garbage is a failure":                     {hook.Hook{Command: "echo hello"}, "", "is no answer"},
		"an unknown member is garbage":             {hook.Hook{Command: `echo '{"allow":true}'`}, "", "is no answer"},
		"too much is a failure":                    {hook.Hook{Command: "yes | head -c 1000000"}, "", "wrote more than"},
		"a signal is a failure":                    {hook.Hook{Command: "kill -9 $$"}, "", "killed ended it"},
		"a command that is not there is one":       {hook.Hook{Command: "/nowhere/x"}, "", "exit status is 127"},
		"a hook that hangs is killed":              {hook.Hook{Command: "sleep 1000", Timeout: hook.Duration(50 * time.Millisecond)}, "", "killed after 50ms"},
		"a daemon that holds the pipes is ended":   {hook.Hook{Command: "setsid sleep 1000 & exit 2"}, "gives no reason", ""},
		"a hook that hangs and is required denies": {hook.Hook{Command: "cat; sleep 1000", Timeout: hook.Duration(50 * time.Millisecond), Required: true}, "killed after", "killed after"},
	} {
		t.Run(name, func(t *testing.T) {
			test.hook.On = hook.BeforeTool
			r, reported := runner(t, test.hook)
			err := r.Agent().BeforeCall(t.Context(), call)
			if (err == nil) != (test.denied == "") || err != nil && !strings.Contains(err.Error(), test.denied) {
				t.Errorf("the call is denied by %v, want %q", err, test.denied)
			}
			if got := reported(); (got == "") != (test.reported == "") || !strings.Contains(got, test.reported) {
				t.Errorf("reported is %q, want %q", got, test.reported)
			}
		})
	}
}

func TestInputsLargerThanAPipeAreReadOrNot(t *testing.T) {
	big := agent.Call{Tool: "write", Arguments: []byte(`{"text":"` + strings.Repeat("x", 1<<20) + `"}`)}
	for _, command := range []string{"true", "cat >/dev/null"} {
		r, reported := runner(t, hook.Hook{On: hook.BeforeTool, Command: command})
		if err := r.Agent().BeforeCall(t.Context(), big); err != nil || reported() != "" {
			t.Errorf("%s: %v, %s", command, err, reported())
		}
	}
}

func TestRemarksAndGoingOn(t *testing.T) {
	r, reported := runner(t, hook.Hook{On: hook.AfterTool, Command: `grep -q '"text":"done"' && echo '{"remark":"not formatted"}'`})
	if got := r.Agent().AfterCall(t.Context(), agent.Call{Tool: "edit"}, tool.Result{Text: "done"}); got != "not formatted" || reported() != "" {
		t.Errorf("the remark is %q, reported %q", got, reported())
	}
	r, reported = runner(t, hook.Hook{On: hook.Stop, Command: `echo '{"continue":"run the tests"}'`})
	if got := r.Agent().Stop(t.Context(), "I am done"); got != "run the tests" || reported() != "" {
		t.Errorf("it says %q, reported %q", got, reported())
	}
	r, _ = runner(t, hook.Hook{On: hook.SessionStart, Command: `cat > seen; test -z "$OPENAI_API_KEY"`})
	r.Agent().Start(t.Context(), true)
	if got := string(must(os.ReadFile(filepath.Join(r.Dir, "seen")))); !strings.Contains(got, `"on":"session-start","session":"s1"`) || !strings.Contains(got, `"resumed":true`) {
		t.Errorf("the hook was given %s", got)
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		`[{"on":"stop","command":"x"}]`:  "",
		``:                               "",
		`[{"on":"stopp","command":"x"}]`: "no point of a run",
		`[{"on":"stop","command":" "}]`:  "no command",
		`[{"on":"stop","tool":"bash","command":"x"}]`:     "is for no tool",
		`[{"on":"stop","required":true,"command":"x"}]`:   "can be required",
		`[{"on":"before-tool","tool":"[","command":"x"}]`: "no pattern",
		`[{"on":"stop","command":"x","timeout":"1h"}]`:    "no time",
		`[{"on":"stop","command":"x","timeout":5}]`:       "a time is a string",
		`[{"on":"stop","command":"x","cmd":"y"}]`:         "unknown field",
		`[] []`: "something follows",
		`{`:     "unexpected EOF",
		`[` + strings.Repeat(`{"on":"stop","command":"x"},`, 100) + `{"on":"stop","command":"x"}]`: "100 are the most",
	} {
		_, err := hook.Parse("f", []byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", text, err, want)
		}
	}
}

func TestAProjectIsTrustedAsItIs(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	if p, err := hook.Read(home, dir); p != nil || err != nil {
		t.Fatalf("a project without hooks: %v, %v", p, err)
	}
	path := filepath.Join(dir, hook.File)
	write := func(text string) *hook.Project {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return must(hook.Read(home, dir))
	}
	const first = `{"hooks":[{"on":"stop","command":"true"}]}`
	p := write(first)
	if p.Trusted {
		t.Fatal("it is trusted, and nobody said so")
	}
	if err := p.Trust(home); err != nil {
		t.Fatal(err)
	}
	if !write(first).Trusted {
		t.Error("it is not trusted any more")
	}
	if write(`{"hooks":[{"on":"stop","command":"evil"}]}`).Trusted {
		t.Error("another content is trusted")
	}
	other := t.TempDir()
	if err := os.CopyFS(other, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, hook.File), []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	if must(hook.Read(home, other)).Trusted {
		t.Error("the same content elsewhere is trusted")
	}
	p = write(first)
	if err := p.Distrust(home); err != nil || must(hook.Read(home, dir)).Trusted {
		t.Errorf("it is trusted still: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"hooks":[{"on":"before-tool","tool":"b*","command":"x","timeout":"5s","required":true}]}`))
	f.Add([]byte(`{"deny":"no"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		hooks, err := hook.ParseFile("f", data)
		for _, h := range hooks {
			if err != nil || h.Command == "" || h.Timeout <= 0 || time.Duration(h.Timeout) > hook.MaxTimeout {
				t.Errorf("%+v, %v", h, err)
			}
		}
		if a, err := hook.ParseAnswer(data); err != nil && a != (hook.Answer{}) {
			t.Errorf("%+v beside %v", a, err)
		}
	})
}
