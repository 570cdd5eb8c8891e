package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func writeLog(t testing.TB, m *session.Manager, name string, lines ...string) string {
	t.Helper()
	dir := filepath.Join(m.Home(), "sessions", "-p")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const foreignHeader = `{"type":"session","version":3,"id":"s1","timestamp":"2026-11-20T20:17:07.977Z","cwd":"/p"}` + "\n"

func foreignMsg(id, parent, text string) string {
	p := "null"
	if parent != "" {
		p = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"type":"message","id":%q,"parentId":%s,"timestamp":"2026-11-20T20:17:08.000Z","message":{"role":"user","content":%q,"timestamp":1}}`+"\n", id, p, text)
}

func TestTheHighestArtifactIDSurvivesAnIndexMadeForOtherReasons(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	var lines []string
	lines = append(lines, foreignHeader, `{"type":"model_change","id":"m","parentId":null,"timestamp":"2026-11-20T20:17:08.000Z","model":"a/b"}`+"\n")
	prev := "m"
	for i := range 1500 {
		id := fmt.Sprint("e", i)
		lines = append(lines, foreignMsg(id, prev, strings.Repeat("x", 1000)))
		prev = id
	}
	lines = append(lines, fmt.Sprintf(`{"type":"message","id":"art","parentId":%q,"timestamp":"2026-11-20T20:17:08.000Z","message":{"role":"toolResult","toolCallId":"c","toolName":"bash","content":[],"isError":false,"details":{"artifact":{"id":"41"}}}}`+"\n", prev))
	lines = append(lines, `{"type":"compaction","id":"comp","parentId":"art","timestamp":"2026-11-20T20:17:08.000Z","summary":"s","firstKeptEntryId":"art","tokensBefore":1}`+"\n")
	path := writeLog(t, m, "s.jsonl", lines...)
	s := reopen(t, m, path)
	c := must(s.Context(t.Context()))
	if c.Settings.DefaultModel() != "a/b" {
		t.Fatal(c.Settings)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, m, path)
	if got := must(s.MaxArtifactID(t.Context())); got != 41 {
		t.Fatalf("after an index made for settings: %d", got)
	}
	appendOK(t, s, entry.MessageBody{Message: json.RawMessage(`{"role":"bashExecution","command":"x","output":"","details":{"artifact":{"id":42}}}`)})
	s.Close()
	s = reopen(t, m, path)
	if got := must(s.MaxArtifactID(t.Context())); got != 42 {
		t.Fatalf("after an append behind the look: %d", got)
	}
}

func TestCloseWhileOthersAppend(t *testing.T) {
	for range 30 {
		m := newManager(t, session.Options{Durability: session.Flush})
		s := newSession(t, m)
		appendOK(t, s, user("x"))
		var wg sync.WaitGroup
		appended := make(chan struct{}, 4)
		for range 4 {
			wg.Go(func() {
				for n := 0; ; n++ {
					if _, err := s.Append(context.Background(), user("y")); err != nil {
						if !errors.Is(err, session.ErrClosed) {
							t.Error(err)
						}
						return
					}
					if n == 2 {
						appended <- struct{}{}
					}
				}
			})
		}
		<-appended
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	}
}

func TestAFileEmptiedUnderAnOpenSessionKeepsItsIdentity(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	a := newSession(t, m)
	appendOK(t, a, user("x"))
	s := reopen(t, m, a.Path())
	id := s.ID()
	appendOK(t, s, user("y"))
	if err := os.Truncate(a.Path(), 0); err != nil {
		t.Fatal(err)
	}
	appendOK(t, s, user("z"))
	s2, err := m.Open(t.Context(), a.Path())
	if err != nil {
		data, _ := os.ReadFile(a.Path())
		t.Fatalf("%v\n%s", err, data)
	}
	defer s2.Close()
	if s2.ID() != id {
		t.Fatalf("id %q became %q", id, s2.ID())
	}
}

func TestCompactionsInABatchRepeatTheSettings(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	root := appendOK(t, s, user("x"))
	appendOK(t, s, entry.ModelChange{Model: "a/one"})
	if _, err := s.AppendAll(t.Context(), entry.ModelChange{Model: "a/two"}, entry.Compaction{Summary: "s", FirstKeptEntryID: root, TokensBefore: 1}); err != nil {
		t.Fatal(err)
	}
	var last entry.Entry
	for e := range s.Entries(t.Context()) {
		last = e
	}
	c, ok := last.Checkpoint()
	if !ok || c.Settings.DefaultModel() != "a/two" {
		t.Errorf("AppendAll: %v %+v", ok, c)
	}
	id := must(s.AppendUnder(t.Context(), root, entry.Compaction{Summary: "s", FirstKeptEntryID: root, TokensBefore: 1}))
	e := must(s.Entry(t.Context(), id))
	c, ok = e.Checkpoint()
	if !ok || c.Settings.DefaultModel() != "" {
		t.Errorf("AppendUnder: %v %+v", ok, c)
	}
}

func TestTitlesAreToldByEverybodyWhoGivesThem(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: "made with it"}))
	defer s.Close()
	if got := must(s.Title(t.Context())); got != "made with it" {
		t.Errorf("before the first entry: %q", got)
	}
	appendOK(t, s, user("x"))
	f := must(os.OpenFile(s.Path(), os.O_APPEND|os.O_WRONLY, 0))
	fmt.Fprintf(f, `{"type":"session_info","id":"pi1","parentId":null,"timestamp":"2036-11-20T20:17:08.000Z","name":"given by pi"}`+"\n")
	f.Close()
	if got := must(s.Title(t.Context())); got != "given by pi" {
		t.Errorf("after pi renamed: %q", got)
	}
	if got := must(m.Find(t.Context(), s.ID())).Title; got != "given by pi" {
		t.Errorf("listed after pi renamed: %q", got)
	}
	long := strings.Repeat("long title ", 100)
	long = strings.TrimSpace(long)
	s2 := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{Title: long}))
	defer s2.Close()
	appendOK(t, s2, user("x"))
	if got := must(s2.Title(t.Context())); got != long {
		t.Errorf("a long title given at the start was cut to %d of %d bytes", len(got), len(long))
	}
	slot := `{"type":"title","v":1,"title":"in the slot","updatedAt":"2026-11-20T20:17:08.000Z","pad":"`
	slot += strings.Repeat(" ", 255-len(slot)-2) + "\"}\n"
	p := writeLog(t, m, "slot.jsonl", slot)
	s3 := reopen(t, m, p)
	if got := must(s3.Title(t.Context())); got != "in the slot" {
		t.Errorf("slot only: %q", got)
	}
}

func TestSessionsOfNewerVersionsCanBeTrashedAndCompressed(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	h4 := strings.Replace(foreignHeader, `"version":3`, `"version":4`, 1)
	p := writeLog(t, m, "v4.jsonl", h4, foreignMsg("a", "", "x"))
	if err := m.Compress(t.Context(), p); err != nil {
		t.Error("compress:", err)
	}
	if _, err := m.Trash(t.Context(), p); err != nil {
		t.Error("trash:", err)
	}
	h1 := strings.Replace(foreignHeader, `"version":3,`, ``, 1)
	content := h1 + `{"type":"message","timestamp":"2026-11-20T20:17:08.000Z","message":{"role":"user","content":"x","timestamp":1}}` + "\n"
	p = writeLog(t, m, "v1.jsonl", content)
	tr, err := m.Trash(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if data := must(os.ReadFile(filepath.Join(tr.Dir, "v1.jsonl"))); string(data) != content {
		t.Errorf("trash changed the file: %s", data)
	}
}

func TestARewriteInPlaceThatDropsOursIsNoticed(t *testing.T) {
	for _, grow := range []int{0, 3000} {
		var events []session.Event
		m := newManager(t, session.Options{Durability: session.Flush, Report: func(e session.Event) { events = append(events, e) }})
		p := writeLog(t, m, "s.jsonl", foreignHeader, foreignMsg("a", "", "x"))
		s := reopen(t, m, p)
		mine := appendOK(t, s, user("mine"))
		os.WriteFile(p, []byte(foreignHeader+foreignMsg("a", "", "x")+foreignMsg("b", "a", strings.Repeat("y", grow))), 0o600)
		appendOK(t, s, user("next"))
		data := string(must(os.ReadFile(p)))
		if !strings.Contains(data, mine) && len(events) == 0 {
			t.Errorf("grown by %d: entry %s is gone and nobody is told", grow, mine)
		}
		for _, err := range s.Entries(t.Context()) {
			if err != nil {
				t.Error(err)
			}
		}
		noDamage(t, s)
	}
}

func TestLineNumbersHoldAfterALineWithoutNewline(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	for name, content := range map[string]string{
		"header": strings.TrimSuffix(foreignHeader, "\n"),
		"entry":  foreignHeader + strings.TrimSuffix(foreignMsg("a", "", "x"), "\n"),
		"torn":   foreignHeader + foreignMsg("a", "", "x")[:60],
	} {
		p := writeLog(t, m, name+".jsonl", content)
		s := reopen(t, m, p)
		must(s.Tree(t.Context()))
		appendOK(t, s, user("y"))
		tr := must(s.Tree(t.Context()))
		fresh := must(reopen(t, m, p).Tree(t.Context()))
		for i := range fresh.Len() {
			if tr.Node(i) != fresh.Node(i) {
				t.Errorf("%s: node %d is %+v, fresh %+v", name, i, tr.Node(i), fresh.Node(i))
			}
		}
		if fmt.Sprint(tr.Damage()) != fmt.Sprint(fresh.Damage()) {
			t.Errorf("%s: damage %v, fresh %v", name, tr.Damage(), fresh.Damage())
		}
		appendOK(t, s, user("z"))
		tr = must(s.Tree(t.Context()))
		fresh = must(reopen(t, m, p).Tree(t.Context()))
		for i := range fresh.Len() {
			if tr.Node(i) != fresh.Node(i) {
				t.Errorf("%s: node %d is %+v, fresh %+v", name, i, tr.Node(i), fresh.Node(i))
			}
		}
	}
}

func TestTheLastOfManyRenamesIsInHeaderAndEntries(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("x"))
	var all []*session.Session
	for range 3 {
		all = append(all, reopen(t, m, s.Path()))
	}
	for round := range 10 {
		var wg sync.WaitGroup
		for i, x := range all {
			for j := range 2 {
				wg.Go(func() {
					if err := x.Rename(t.Context(), fmt.Sprintf("r%d s%d g%d", round, i, j), session.TitleUser); err != nil {
						t.Error(err)
					}
				})
			}
		}
		wg.Wait()
		last := ""
		for e := range s.Entries(t.Context()) {
			if title, _, ok := e.Title(); ok {
				last = title
			}
		}
		var h struct{ Title string }
		line, _, _ := strings.Cut(string(must(os.ReadFile(s.Path()))), "\n")
		json.Unmarshal([]byte(line), &h)
		if h.Title != last {
			t.Fatalf("round %d: header %q, last entry %q", round, h.Title, last)
		}
	}
}

func TestAWatchBehindAnEntryThatIsNotThereSaysSo(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("x"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for _, err := range s.Watch(ctx, "nobody") {
		if !errors.Is(err, session.ErrNoEntry) {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("it waited in silence")
}

func TestACancelledAppendThatWaitsForALockTellsThatItIsPending(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("x"))
	lock := must(durable.OpenLock(durable.OS, strings.TrimSuffix(s.Path(), ".jsonl")+".lock"))
	if ok, err := lock.TryLock(); !ok || err != nil {
		t.Fatal(ok, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	id, err := s.Append(ctx, user("y"))
	var p *session.PendingError
	if !errors.As(err, &p) || !errors.Is(err, context.Canceled) || p.IDs[0] != id {
		t.Fatal(err)
	}
	lock.Close()
	appendOK(t, s, user("z"))
	if got := ids(t, s); len(got) != 3 || got[1] != id {
		t.Fatal(got)
	}
}

func TestAPendingEntryCanBeAParent(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("x"))
	lock := must(durable.OpenLock(durable.OS, strings.TrimSuffix(s.Path(), ".jsonl")+".lock"))
	must(lock.TryLock())
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	id, err := s.Append(ctx, user("pending"))
	if err == nil {
		t.Fatal("no error")
	}
	lock.Close()
	end, err := s.AppendBeside(t.Context(), id, user("end"), entry.Custom{CustomType: "back"})
	if err != nil {
		t.Fatal(err)
	}
	e := must(s.Entry(t.Context(), end))
	if e.Parent() != id {
		t.Fatal(e.Parent())
	}
}

func TestALockFileThatIsNoFileIsRefused(t *testing.T) {
	for _, kind := range []string{"symlink", "fifo", "dir"} {
		m := newManager(t, session.Options{Durability: session.Flush})
		p := writeLog(t, m, "s.jsonl", foreignHeader, foreignMsg("a", "", "x"))
		name := strings.TrimSuffix(p, ".jsonl") + ".lock"
		target := filepath.Join(t.TempDir(), "target")
		switch kind {
		case "symlink":
			os.Symlink(target, name)
		case "fifo":
			must(0, mkfifo(name))
		case "dir":
			os.Mkdir(name, 0o700)
		}
		before := must(os.ReadFile(p))
		s := reopen(t, m, p)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := s.Append(ctx, user("y"))
		cancel()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Error(kind, err)
		}
		if string(must(os.ReadFile(p))) != string(before) {
			t.Error("changed")
		}
		if _, err := os.Stat(target); err == nil {
			t.Error("target made")
		}
	}
}

func mkfifo(name string) error { return unix.Mkfifo(name, 0o600) }

func TestALogOfAnotherNameIsNotCompressed(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "s.log", foreignHeader, foreignMsg("a", "", "x"))
	before := must(os.ReadFile(path))
	if err := m.Compress(t.Context(), path); err == nil || !strings.Contains(err.Error(), "*.jsonl") {
		t.Error(err)
	}
	if string(must(os.ReadFile(path))) != string(before) {
		t.Error("the file changed")
	}
}

func TestEndsOfRunsThatAreWrittenTogetherKeepEverybodysLeaf(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	root := appendOK(t, s, user("root"))
	for round := range 5 {
		// Runs begin on the main branch; some are left behind on another one.
		side := must(s.AppendUnder(t.Context(), root, user("side")))
		run := must(s.AppendUnder(t.Context(), side, user("run on the side")))
		main := must(s.AppendUnder(t.Context(), root, user("main")))
		here := appendOK(t, s, user("run on the main branch"))
		lock := must(durable.OpenLock(durable.OS, strings.TrimSuffix(s.Path(), ".jsonl")+".lock"))
		must(lock.TryLock()) // so that all of them wait together
		var wg sync.WaitGroup
		ends := make([]string, 8)
		for i := range ends {
			wg.Go(func() {
				parent := here
				if i%2 == 1 {
					parent = run
				}
				id, err := s.AppendBeside(t.Context(), parent, user(fmt.Sprint("end ", i)), entry.Custom{CustomType: "back"})
				if err != nil {
					t.Error(err)
				}
				ends[i] = id
			})
		}
		lock.Close()
		wg.Wait()
		tr := must(s.Tree(t.Context()))
		path := map[string]bool{}
		for _, i := range tr.Path(tr.Leaf()) {
			path[tr.Node(i).ID] = true
		}
		if !path[main] || !path[here] || path[side] {
			t.Fatalf("round %d: the leaf left its branch", round)
		}
		for i, id := range ends {
			if path[id] != (i%2 == 0) {
				t.Errorf("round %d: end %d on the leaf's path: %v", round, i, path[id])
			}
			if at := tr.Node(tr.Find(id)); i%2 == 1 && tr.Node(at.Parent).ID != run {
				t.Errorf("round %d: end %d hangs from %s", round, i, tr.Node(at.Parent).ID)
			}
		}
	}
	noDamage(t, s)
}

func TestAnEntryThatMetAFullDiskIsWrittenOnceUnderItsID(t *testing.T) {
	for n := range 12 {
		faults := faultfs.New(durable.OS)
		m := newManager(t, session.Options{Durability: session.Flush, FS: faults})
		s := newSession(t, m)
		first := appendOK(t, s, user("first"))
		faults.FullAt(len(faults.Ops()) + n)
		id, err := s.Append(t.Context(), bigMessage)
		ids2, err2 := s.AppendAll(t.Context(), user("b"), user("c"))
		if err2 != nil {
			t.Fatal(n, err2)
		}
		if got, want := ids(t, s), append([]string{first, id}, ids2...); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%d: got %v, want %v (%v)", n, got, want, err)
		}
		noDamage(t, s)
	}
}

func TestADrivenSessionIsNotTrashed(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("x"))
	driver := must(s.Drive())
	defer driver.Close()
	_, err := m.Trash(t.Context(), s.Path())
	var locked *session.LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Fatal(err)
	}
	appendOK(t, s, user("y"))
}
