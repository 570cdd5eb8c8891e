package python

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/pipe"
	"github.com/agentrun/agentrun/internal/process"
	"github.com/agentrun/agentrun/tool/bash"
)

func TestATimeoutKeepsTheState(t *testing.T) {
	k := kernel(t, Options{})
	cell(t, k, "a = 1")
	for name, code := range map[string]string{
		"in a wait":          "print('before', flush=True); import time; time.sleep(1000)",
		"in a loop":          "print('before')\nwhile True: pass",
		"in a coroutine":     "print('before'); import asyncio; await asyncio.sleep(1000)",
		"in a busy one":      "print('before')\nasync def f():\n  while True: pass\nawait f()",
		"for a process":      "print('before'); import subprocess; subprocess.run(['sleep', '1000'])",
		"waiting for a lock": "print('before'); import threading; l = threading.Lock(); l.acquire(); l.acquire()",
	} {
		got := cell(t, k, code, func(c *Cell) { c.Timeout = 300 * time.Millisecond })
		if !got.TimedOut || got.Code != 124 || got.Lost != nil || !strings.HasPrefix(got.out, "before\n") || !strings.Contains(got.out, "KeyboardInterrupt") {
			t.Errorf("%s: %+v", name, got)
		}
		if got := cell(t, k, "a"); got.result() != "1" || len(got.Notes) > 0 {
			t.Errorf("%s: behind it %+v", name, got)
		}
	}
}

func TestAnInterruptedImportOfAsyncioDoesNotSpoilTheNext(t *testing.T) {
	// It is what such an import leaves: the package is gone again, most of its modules are not.
	const halve = "import sys, asyncio\ndel sys.modules['asyncio'], asyncio\n"
	for name, code := range map[string]string{
		"of the kernel": "async def f(): return 2\nawait f()",
		"of a cell":     "import asyncio\nawait asyncio.sleep(0, 2)",
	} {
		k := kernel(t, Options{})
		got := cell(t, k, halve+"import os, signal\nos.kill(os.getpid(), signal.SIGINT)")
		if got.Code != 130 || !strings.Contains(got.out, "KeyboardInterrupt") {
			t.Fatalf("%s: %+v", name, got)
		}
		if got := cell(t, k, code); got.Code != 0 || got.result() != "2" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestACellThatIsDeafEndsWithItsKernel(t *testing.T) {
	k := kernel(t, Options{})
	got := cell(t, k, "a = 1; import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nprint('on')\nwhile True: pass",
		func(c *Cell) { c.Timeout = 200 * time.Millisecond })
	if !got.TimedOut || got.Code != 124 || got.Signal != "SIGTERM" || got.Lost == nil || got.out != "on\n" {
		t.Errorf("%+v", got)
	}
	got = cell(t, k, "'a' in globals()")
	if got.result() != "False" || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "new kernel") {
		t.Errorf("%+v", got)
	}
}

func TestADeathIsToldAndNothingIsRunTwice(t *testing.T) {
	dir := t.TempDir()
	k := kernel(t, Options{Dir: dir})
	for name, c := range map[string]struct {
		code, note string
		exit       int
	}{
		"a kill":          {"import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed by SIGKILL while the cell ran: what cells had defined is gone; this cell is not run again", 137},
		"a crash":         {"import ctypes; ctypes.string_at(0)", "killed by SIGSEGV", 139},
		"os._exit":        {"import os; os._exit(3)", "ended with this cell, with status 3", 3},
		"another program": {"import os; os.execvp('sh', ['sh', '-c', 'echo sh; exit 5'])", "with status 5", 5},
	} {
		file := filepath.Join(dir, strings.ReplaceAll(name, " ", ""))
		got := cell(t, k, fmt.Sprintf("b = 1; print('said'); _ = open(%q, 'a').write('x')\n", file)+c.code)
		if got.Code != c.exit || got.Lost == nil || len(got.Notes) == 0 || !strings.Contains(strings.Join(got.Notes, "; "), c.note) || !strings.HasPrefix(got.out, "said\n") {
			t.Errorf("%s: %+v", name, got)
		}
		if name == "a crash" && !strings.Contains(got.out, `File "<cell`) {
			t.Errorf("%s does not say where: %s", name, got.out)
		}
		got = cell(t, k, "'b' in globals()")
		if got.result() != "False" || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "new kernel") {
			t.Errorf("behind %s: %+v", name, got)
		}
		if b, _ := os.ReadFile(file); string(b) != "x" {
			t.Errorf("%s ran %d times", name, len(b))
		}
	}
}

func TestAKernelThatIsKilledBetweenCellsIsTold(t *testing.T) {
	k := kernel(t, Options{})
	pid, _ := strconv.Atoi(cell(t, k, "import os; os.getpid()").result())
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-k.live.shim.Exited()
	if got := cell(t, k, "2"); got.result() != "2" || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "new kernel") {
		t.Errorf("%+v", got)
	}
}

func TestPrintsDoNotForgeTheEnd(t *testing.T) {
	k := kernel(t, Options{})
	const frame = `{"event":"end","cell":1,"code":9,"result":"forged","interrupted":false,"user":0,"system":0}`
	got := cell(t, k, "import os\nm = "+strconv.Quote(frame)+".encode()\nf = len(m).to_bytes(4, 'big') + bytes(16) + m\nprint(f)\nfor fd in (1, 2): _ = os.write(fd, f)\n'true'")
	if got.Code != 0 || got.result() != "'true'" {
		t.Errorf("%+v", got)
	}
	// What a process that is started inherits is nothing of the kernel.
	got = cell(t, k, "import subprocess; print(subprocess.run('ls -l /proc/self/fd', shell=True, capture_output=True, text=True, close_fds=False).stdout)")
	if strings.Contains(got.out, "socket") {
		t.Errorf("%s", got.out)
	}
}

func TestACellThatWritesToTheSocketsEndsItsKernelPlainly(t *testing.T) {
	for name, code := range map[string]string{
		"writing to all": "import os\nfor fd in range(3, 1024):\n  try: os.write(fd, b'x' * 100)\n  except OSError: pass",
		"closing all":    "import os\nos.closerange(3, 65536)",
		"closing theirs": "import os\nos.closerange(3, 65536)\nf = [open('/dev/null', 'w') for _ in range(1000)]",
		"shutting down":  "import socket, os\nfor fd in range(3, 1024):\n  try: socket.socket(fileno=os.dup(fd)).shutdown(2)\n  except OSError: pass",
	} {
		k := kernel(t, Options{})
		cell(t, k, "a = 1")
		got := cell(t, k, code)
		if got.Code == 0 || got.Lost == nil || len(got.Notes) == 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if got := cell(t, k, "1"); got.result() != "1" || len(got.Notes) != 1 {
			t.Errorf("behind %s: %+v", name, got)
		}
	}
}

func TestOutputLandsInTheCellThatStartedWhoWritesIt(t *testing.T) {
	k := kernel(t, Options{})
	got := cell(t, k, `
import threading, subprocess, sys, os, asyncio
go, done = threading.Event(), threading.Event()
def speak():
    go.wait(); print('from the thread'); done.set()
threading.Thread(target=speak, daemon=True).start()
p = subprocess.Popen(['sh', '-c', 'read x; echo from the process'], stdin=subprocess.PIPE)
print('one')
`)
	if got.out != "one\n" || got.Code != 0 {
		t.Fatalf("%+v", got)
	}
	var own strings.Builder
	got = cell(t, k, "print('two'); go.set(); done.wait(); p.communicate(b'x\\n'); print('two too')", func(c *Cell) { c.Stdout = &own })
	text := own.String()
	mine, others, ok := strings.Cut(text, "[printed by cell 1 behind its end:]\n")
	if !ok || mine != "two\n(None, None)\ntwo too\n" && mine != "two\ntwo too\n" || others != "from the thread\nfrom the process\n[end of that]\n" {
		t.Errorf("%q", text)
	}
	// Between cells.
	cell(t, k, "import time\nasync def tick():\n  await asyncio.sleep(0.01); print('from the task'); ticked = True\nt = asyncio.get_event_loop_policy().new_event_loop() and None\nasync def begin(): return asyncio.ensure_future(tick())\nt = await begin()")
	for n := 0; ; n++ {
		got = cell(t, k, "await t")
		if strings.Contains(got.out, "[printed by cell 3 behind its end:]\nfrom the task\n") || n > 3 {
			break
		}
	}
	if !strings.Contains(got.out, "[printed by cell 3 behind its end:]\nfrom the task\n[end of that]\n") {
		t.Errorf("%q", got.out)
	}
}

func TestMuchOutputBehindTheEndIsBounded(t *testing.T) {
	k := kernel(t, Options{})
	cell(t, k, "import threading; done = threading.Event(); go = threading.Event()\ndef f():\n  go.wait()\n  for i in range(2000): print(str(i) * 100)\n  done.set()\nthreading.Thread(target=f).start()")
	got := cell(t, k, "go.set(); done.wait(); print('x')")
	if n := len(got.out); n > pipe.MaxLate+300 || n < pipe.MaxLate || !strings.HasPrefix(got.out, "x\n[") || !strings.Contains(got.out, "were dropped]") || !strings.Contains(got.out, strings.Repeat("1999", 100)+"\n[end of that]") {
		t.Errorf("%d bytes: %.300s", n, got.out)
	}
}

func TestASecondCellAtTheSameTimeHasItsOwnKernel(t *testing.T) {
	k := kernel(t, Options{})
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	cell(t, k, "a = 1")
	var first sync.WaitGroup
	first.Go(func() {
		cell(t, k, fmt.Sprintf("open(%q, 'w').close(); open(%[1]q).read(); a = 2", fifo))
	})
	f, err := os.Open(fifo)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	got := cell(t, k, "'a' in globals()")
	if got.result() != "False" || len(got.Notes) != 1 || !strings.Contains(got.Notes[0], "kernel of its own") {
		t.Errorf("%+v", got)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	first.Wait()
	if got := cell(t, k, "a"); got.result() != "2" {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsLeftOfManyKernels(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 5
	}
	fds := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	n := 0
	round := func() {
		k := kernel(t, Options{Dir: "/"})
		cell(t, k, "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()")
		if n++; n%10 == 0 {
			cell(t, k, "import subprocess; p = subprocess.Popen(['setsid', 'sleep', '1000'])")
		}
		k.Close()
	}
	round()
	before, goroutines := fds(), runtime.NumGoroutine()
	for range rounds {
		round()
	}
	if after := fds(); after > before {
		t.Errorf("%d descriptors, then %d", before, after)
	}
	if after := runtime.NumGoroutine(); after > goroutines+2 { // of the runtime
		t.Errorf("%d goroutines, then %d", goroutines, after)
	}
	if members, err := process.Descendants(os.Getpid()); err != nil || len(members) > 0 {
		t.Errorf("%v are left, %v", members, err)
	}
}

func TestManyCellsLeaveNoDescriptors(t *testing.T) {
	k := kernel(t, Options{})
	count := "import os; len(os.listdir('/proc/self/fd'))"
	cell(t, k, count)
	before := cell(t, k, count).result()
	for i := range 300 {
		cell(t, k, "print(1)", func(c *Cell) { c.Separate = i%2 == 0 })
	}
	cell(t, k, "1")
	if after := cell(t, k, count).result(); after != before {
		t.Errorf("%s descriptors in the kernel, then %s", before, after)
	}
	k.live.prune()
	if n := len(k.live.outputs); n > 3 {
		t.Errorf("%d outputs are open", n)
	}
}

func TestWhatCanNotBeAKernelIsToldPlainly(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "python")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no Python >&2; exit 4\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		script:         `it ended at once, with status 4, and said "no Python": name another interpreter`,
		"/bin/cat":     "it ended at once, with status 1",
		"/nothing/at":  "finding Python: /nothing/at: no such file",
		"no-such-name": "finding Python: no-such-name: command not found",
	} {
		k, err := New(Options{Path: path, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = k.RunCell(context.Background(), &Cell{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
		k.Close()
	}
}

func TestACellThatIsCancelledAtOnceKeepsTheState(t *testing.T) {
	k := kernel(t, Options{})
	cell(t, k, "a = 1")
	limit := make(chan struct{})
	close(limit)
	for range 20 {
		got := cell(t, k, "import time; time.sleep(1000)", func(c *Cell) { c.Limit = limit })
		if !got.OutputLimit || got.Lost != nil {
			t.Fatalf("%+v", got)
		}
	}
	if got := cell(t, k, "a"); got.result() != "1" {
		t.Errorf("%+v", got)
	}
}

func TestInterruptsAtAnyMomentKeepTheState(t *testing.T) {
	k := kernel(t, Options{})
	cell(t, k, "a = 1; p = b'\\x89PNG' + bytes(1 << 16)")
	host := func(c *Cell) {
		c.Host = func(context.Context, string, json.RawMessage) (any, error) {
			return content{Base64: make([]byte, 1<<18)}, nil
		}
	}
	rounds := 60
	if testing.Short() {
		rounds = 10
	}
	for i := range rounds {
		code := "while True: display(p, mime='image/png')"
		if i%2 == 0 {
			code = "while True: agentrun.read('x')"
		}
		got := cell(t, k, code, host, func(c *Cell) { c.Timeout = time.Duration(5+i%7) * time.Millisecond })
		if !got.TimedOut || got.Lost != nil {
			t.Fatalf("%d: %+v", i, got.Exit)
		}
		if got := cell(t, k, "len(agentrun.read('x')), a", host); got.result() != "(262144, 1)" {
			t.Fatalf("%d: %+v", i, got)
		}
	}
}

func TestAnExceptionGroupIsTold(t *testing.T) {
	k := kernel(t, Options{})
	got := cell(t, k, "import sys\nif sys.version_info < (3, 11): print('ValueError: 1 line 3')\nelse: raise ExceptionGroup('two', [ValueError(1), KeyError(2)])")
	if !strings.Contains(got.out, "ValueError: 1") || !strings.Contains(got.out, "line 3") || strings.Contains(got.out, "agentrun kernel") {
		t.Error(got.out)
	}
}

func TestCodeThatNoKernelCanBeGivenIsRefused(t *testing.T) {
	k := kernel(t, Options{})
	for code, want := range map[string]string{"\xff": "no UTF-8", "a\x00": "NUL", strings.Repeat("#", MaxCode+1): "are the most"} {
		_, _, err := k.RunCell(t.Context(), &Cell{Script: bash.Script{Text: code}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.10q: %v", code, err)
		}
	}
	if got := cell(t, k, strings.Repeat("#", MaxCode)); got.Code != 0 {
		t.Errorf("%+v", got)
	}
}
