package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// proc skips where the system tells nothing about processes.
func proc(t *testing.T) {
	t.Helper()
	if _, err := ReadStat(os.Getpid()); err != nil {
		t.Skip("no process status here:", err)
	}
}

// ended starts a process and waits for its end without taking note of it, which
// makes it a zombie until the test ends.
func ended(t *testing.T) ID {
	t.Helper()
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() })
	id := Self()
	id.PID = cmd.Process.Pid
	s, err := ReadStat(id.PID)
	if err != nil {
		t.Fatal(err)
	}
	id.PIDStart = s.Start
	if got := id.Life(); got != Alive {
		t.Errorf("a child that runs is %v", got)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := out.Read(make([]byte, 1)); n != 0 {
		t.Fatalf("read %d bytes, %v", n, err)
	}
	for s.State != 'Z' { // its pipes are closed a moment before it is one
		if s, err = ReadStat(id.PID); err != nil {
			t.Fatal(err)
		}
	}
	return id
}

func TestLifeTakesNoProcessForAnother(t *testing.T) {
	proc(t)
	zombie := ended(t)
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(id *ID)
		want   Life
	}{
		{"this process", func(*ID) {}, Alive},
		{"this process, its start unknown", func(id *ID) { id.PIDStart = 0 }, Alive},
		{"one that had our pid before", func(id *ID) { id.PIDStart-- }, Gone},
		{"one of an earlier boot with our pid and start", func(id *ID) { id.BootID = "another" }, Gone},
		{"one of another host", func(id *ID) { id.Host += "x" }, Unknown},
		{"one of another host that was booted at another time", func(id *ID) { id.Host, id.BootID = "x", "y" }, Unknown},
		{"one that has ended", func(id *ID) { id.PID = dead.Process.Pid }, Gone},
		{"one that has ended and whose parent has not looked", func(id *ID) { *id = zombie }, Gone},
		{"no process", func(id *ID) { *id = ID{} }, Unknown},
		{"no process of this host", func(id *ID) { id.PID = 0 }, Unknown},
		{"a process group", func(id *ID) { id.PID = -id.PID }, Unknown},
	} {
		id := Self()
		c.change(&id)
		if got := id.Life(); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSelfIsComplete(t *testing.T) {
	proc(t)
	me := Self()
	if me.PID != os.Getpid() || me.PIDStart == 0 || me.Host == "" || strings.Count(me.BootID, "-") != 4 {
		t.Errorf("%+v", me)
	}
	if again := Self(); again != me {
		t.Errorf("%+v, then %+v", me, again)
	}
}

func TestTheMembersOfAnIDAreThoseOfTheFormats(t *testing.T) {
	id := ID{Host: "h", BootID: "b", PID: 1, PIDStart: 2}
	const want = `{"host":"h","bootId":"b","pid":1,"pidStart":2}`
	b, err := json.Marshal(id)
	if err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
	var back ID
	if err := json.Unmarshal(b, &back); err != nil || back != id {
		t.Errorf("%+v, %v", back, err)
	}
}

func TestReadStatOfNobodyIsAnError(t *testing.T) {
	proc(t)
	for _, pid := range []int{-1, 0, 1 << 30} {
		if s, err := ReadStat(pid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("process %d: %+v, %v", pid, s, err)
		}
	}
}

func TestStatusOfAProcessIsReadWhateverItsName(t *testing.T) {
	const rest = " S 1 40 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 987654 1 1\n"
	for _, name := range []string{"(cat)", "()", "((a) b (c))", "(a) Z 1 2 3)", "(\n)", "(\xff)"} {
		s, err := ParseStat([]byte("42 " + name + rest))
		if err != nil || s != (Stat{State: 'S', Parent: 1, Group: 40, Start: 987654}) || s.Dead() {
			t.Errorf("of %q: %+v, %v", name, s, err)
		}
	}
	for _, bad := range []string{
		"", "42", "42 (x", "42 (x)", "42 (x) S 1 40",
		"42 (x) \x00 1 40 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 9",
		"42 (x) SS 1 40 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 9",
		"42 (x) S y 40 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 9",
		"42 (x) S 1 y 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 9",
		"42 (x) S 1 40 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 -9",
		"42 (x) S 1 40 40 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 99999999999999999999",
	} {
		if s, err := ParseStat([]byte(bad)); err == nil {
			t.Errorf("ParseStat(%q) = %+v, want an error", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	for _, s := range []string{
		"1 (init) S 0 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12 0", "42 (a) b) Z 1 40 40 0 -1 4 1 0 0 0 1 2 3 4 20 0 1 0 9",
		")", "1 ()", ") S 1 2",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseStat(b)
		if err != nil {
			return
		}
		line := fmt.Sprintf("1 (x) %c %d %d 0 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 %d", s.State, s.Parent, s.Group, s.Start)
		if again, err := ParseStat([]byte(line)); err != nil || again != s {
			t.Errorf("%q is %+v, and written anew %+v, %v", b, s, again, err)
		}
	})
}

func TestDescendantsAreFoundAndSignalled(t *testing.T) {
	proc(t)
	cmd := exec.Command("sh", "-c", "sleep 1000 & echo; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	members, err := Descendants(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	found := map[int]Member{}
	for _, m := range members {
		found[m.PID] = m
	}
	below, err := Descendants(cmd.Process.Pid)
	if err != nil || len(below) != 1 || below[0].Parent != cmd.Process.Pid || found[below[0].PID].Start != below[0].Start {
		t.Fatalf("%+v below %+v, %v", below, members, err)
	}
	if PeakMemory(below[0].PID) == 0 {
		t.Error("it has no memory")
	}
	stranger := below[0]
	stranger.Start--
	if err := stranger.Signal(syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("one that had its pid before: %v", err)
	}
	if err := below[0].Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil { // its child is gone
		t.Error(err)
	}
}
