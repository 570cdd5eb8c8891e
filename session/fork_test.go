package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// body is a plain log without its first line.
func body(t testing.TB, path string) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(must(os.ReadFile(path))), "\n")
	return rest
}

// headerOf is the first line of a plain log.
func headerOf(t testing.TB, path string) map[string]any {
	t.Helper()
	line, _, _ := bytes.Cut(must(os.ReadFile(path)), []byte("\n"))
	var h map[string]any
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatal(err)
	}
	return h
}

func forkOf(t testing.TB, m *session.Manager, path string, o session.ForkOptions) (*session.Session, session.Forked) {
	t.Helper()
	forked, err := m.Fork(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := reopen(t, m, forked.Path)
	if s.ID() != forked.ID || s.Parent() != forked.Parent {
		t.Fatalf("it is %s of %s, said %+v", s.ID(), s.Parent(), forked)
	}
	return s, forked
}

func TestAForkHasEveryEntryUnderItsID(t *testing.T) {
	const slot = `{"type":"title","v":1,"title":"slotted","source":"user","updatedAt":"2026-11-20T20:17:07.977Z","pad":"`
	three := say("a", "null") + "\n" + say("b", "a") + "\n" + say("c", "b") + "\n"
	for _, c := range []struct {
		name    string
		content string
		want    string // of the fork behind its header
		title   string
	}{
		{"another program's log", foreignHeader + three, three, ""},
		{
			"a log with a title slot",
			slot + strings.Repeat(" ", 256-len(slot)-3) + "\"}\n" + foreignHeader + three, three, "slotted",
		},
		{"lines as nobody else writes them", foreignHeader + `{ "type":"x", "id":"q","parentId": null,"timestamp":"?","u":1e0 }` + "\r\n", `{ "type":"x", "id":"q","parentId": null,"timestamp":"?","u":1e0 }` + "\r\n", ""},
		{"damage in its middle", foreignHeader + say("a", "null") + "\ngarbage\n\x00\x00\n" + say("c", "a") + "\n", say("a", "null") + "\ngarbage\n\x00\x00\n" + say("c", "a") + "\n", ""},
		{"a last line that was never finished", foreignHeader + three + say("d", "c")[:40], three, ""},
		{"a last line without its newline", foreignHeader + three[:len(three)-1], three, ""},
		{"a last line of zeros", foreignHeader + three + strings.Repeat("\x00", 100), three, ""},
		{
			"a whole and a torn record on the last line",
			foreignHeader + three + say("d", "c") + say("e", "d")[:40], three + say("d", "c") + "\n", "",
		},
		{"a header with members of others", strings.Replace(foreignHeader, `"cwd"`, `"providerPromptCacheKey":"k","previousSessionFiles":["/old"],"title":"given","cwd"`, 1) + three, three, "given"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for at, o := range map[string]session.ForkOptions{"whole": {}, "sync": {}} {
				durability := session.Flush
				if at == "sync" {
					durability = session.Sync
				}
				m := newManager(t, session.Options{Durability: durability})
				path := writeLog(t, m, "2026-11-20T20-17-07-977Z_s1.jsonl", c.content)
				fork, forked := forkOf(t, m, path, o)
				if got := body(t, fork.Path()); got != c.want {
					t.Errorf("its lines are %q, want %q", got, c.want)
				}
				if got := string(must(os.ReadFile(path))); got != c.content {
					t.Error("the original was changed")
				}
				h := headerOf(t, fork.Path())
				if h["parentSession"] != "s1" || h["id"] != forked.ID || h["previousSessionFiles"] != nil || h["cwd"] != "/p" {
					t.Errorf("its header is %v", h)
				}
				if strings.Contains(c.content, "providerPromptCacheKey") && h["providerPromptCacheKey"] != "k" {
					t.Errorf("a member is gone from %v", h)
				}
				if title := must(fork.Title(t.Context())); title != c.title {
					t.Errorf("its title is %q", title)
				}
				if filepath.Dir(fork.Path()) != filepath.Dir(path) {
					t.Errorf("it lies at %s", fork.Path())
				}
				original := reopen(t, m, path)
				sameIDs(t, "entries", ids(t, fork), ids(t, original)...)
				appendOK(t, fork, user("goes on"))
				if n := len(ids(t, original)); n != len(ids(t, fork))-1 {
					t.Errorf("the original has %d entries", n)
				}
			}
		})
	}
}

func TestOfAnOldOrACompressedSessionTheForkIsAPlainOne(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	v1 := writeLog(t, m, "one.jsonl", `{"type":"session","id":"s1","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}
{"type":"message","timestamp":"2025-11-20T23:33:51.000Z","message":{"role":"user","content":"one"}}
{"type":"message","timestamp":"2025-11-20T23:33:52.000Z","message":{"role":"user","content":"two"}}
`)
	v2 := writeLog(t, m, "two.jsonl", `{"type":"session","version":2,"id":"s2","timestamp":"2025-11-20T23:33:50.805Z","cwd":"/p"}
`+say("a", "null")+"\n"+say("b", "a")+"\n")
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	appendOK(t, s, bigMessage)
	s.Close()
	if err := m.Compress(t.Context(), s.Path()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{v1, v2, s.Path()} {
		for _, o := range []session.ForkOptions{{}, {PathOnly: true}} {
			before := map[string]string{}
			for _, name := range must(filepath.Glob(strings.TrimSuffix(path, ".jsonl") + ".jsonl*")) {
				before[name] = string(must(os.ReadFile(name)))
			}
			fork, _ := forkOf(t, m, path, o)
			original := must(m.View(t.Context(), path))
			sameIDs(t, path, ids(t, fork), ids(t, original)...)
			original.Close()
			noDamage(t, fork)
			if fork.Version() != 3 || strings.HasSuffix(fork.Path(), ".zst") {
				t.Errorf("it is version %d at %s", fork.Version(), fork.Path())
			}
			for e, err := range fork.Entries(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if _, missing := must2(fork.Restore(t.Context(), e)); len(missing) > 0 {
					t.Errorf("blobs are missing: %v", missing)
				}
			}
			for name, was := range before {
				if got := string(must(os.ReadFile(name))); got != was {
					t.Errorf("%s was changed", name)
				}
			}
		}
	}
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}

func TestAForkAtAnEntryIsTheLogAsItWas(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	a := appendOK(t, s, user("a"))
	b := appendOK(t, s, user("b"))
	other := must(s.AppendUnder(t.Context(), a, user("another branch")))
	if err := s.Rename(t.Context(), "early", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	c := must(s.AppendUnder(t.Context(), b, user("c")))
	if err := s.Rename(t.Context(), "late", session.TitleUser); err != nil {
		t.Fatal(err)
	}
	appendOK(t, s, user("behind"))
	all := ids(t, s)

	fork, forked := forkOf(t, m, s.Path(), session.ForkOptions{At: c})
	if leaf := must(fork.Leaf(t.Context())); leaf != c || forked.Parent != s.ID() {
		t.Errorf("its leaf is %s, its parent %s", leaf, forked.Parent)
	}
	sameIDs(t, "entries", ids(t, fork), all[:slices.Index(all, c)+1]...)
	sameIDs(t, "context", contextIDs(t, fork), a, b, c)
	if title := must(fork.Title(t.Context())); title != "early" {
		t.Errorf("its title is %q", title)
	}
	if h := headerOf(t, fork.Path()); h["title"] != "early" {
		t.Errorf("its header says %v", h["title"])
	}
	noDamage(t, fork)
	if fork, _ := forkOf(t, m, s.Path(), session.ForkOptions{At: other}); must(fork.Leaf(t.Context())) != other {
		t.Error("another branch's entry is not the leaf")
	}
}

func TestAForkOfOnePathKeepsItsLabelsAndTheTitle(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	cited := artifactOf(t, s, "cited\n")
	a := appendOK(t, s, user(fmt.Sprintf("a artifact://%d", cited)))
	left := must(s.AppendUnder(t.Context(), a, user("left")))
	label := func(target, text string) {
		t.Helper()
		appendOK(t, s, entry.Label{TargetID: target, Label: text})
	}
	onPath := must(s.AppendUnder(t.Context(), a, entry.Label{TargetID: a, Label: "start"}))
	b := appendOK(t, s, user("b"))
	must(s.AppendUnder(t.Context(), left, user("left again")))
	label(b, "good")
	label(left, "elsewhere")
	label(a, "renamed")
	if err := s.Rename(t.Context(), "the title", session.TitleUser); err != nil {
		t.Fatal(err)
	}

	fork, forked := forkOf(t, m, s.Path(), session.ForkOptions{At: b, PathOnly: true})
	if forked.Parent != s.Path() || headerOf(t, fork.Path())["parentSession"] != s.Path() {
		t.Errorf("its parent is %s", forked.Parent)
	}
	sameIDs(t, "entries", ids(t, fork)[:3], a, onPath, b)
	labels := must(fork.Labels(t.Context()))
	if len(labels) != 2 || labels[a] != "renamed" || labels[b] != "good" {
		t.Errorf("its labels are %v", labels)
	}
	if title := must(fork.Title(t.Context())); title != "the title" {
		t.Errorf("its title is %q", title)
	}
	if artifactText(t, fork, 0) != "cited\n" {
		t.Error("the artifact is another")
	}
	noDamage(t, fork)
	sameIDs(t, "context", contextIDs(t, fork), a, b)
}

func TestWhatCannotBeForkedIsSaidAndChangesNothing(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	for _, c := range []struct {
		name, content string
		at            string
		want          string
		is            error
	}{
		{"no entries", foreignHeader, "", "it has no entries yet", nil},
		{"no header", "", "", "it has no entries yet", nil},
		{"a newer version", strings.Replace(foreignHeader, `"version":3`, `"version":4`, 1) + say("a", "null") + "\n", "", "it has version 4 of the format, and this program writes up to 3", session.ErrReadOnly},
		{"an entry there is not", foreignHeader + say("a", "null") + "\n", "zz", "zz", session.ErrNoEntry},
		{"no session", "hello\n", "", "no session header", session.ErrNotSession},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := writeLog(t, m, "s.jsonl", c.content)
			_, err := m.Fork(t.Context(), path, session.ForkOptions{At: c.at})
			if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v", err)
			}
			if got := string(must(os.ReadFile(path))); got != c.content {
				t.Error("it was changed")
			}
			if logs := must(filepath.Glob(filepath.Join(filepath.Dir(path), "*.jsonl"))); len(logs) != 1 {
				t.Errorf("there are %q", logs)
			}
		})
	}
}

func TestAForkOfASubagentsSessionIsASessionOfItsDirectory(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	cwd := t.TempDir()
	s := must(m.Create(t.Context(), cwd, session.CreateOptions{}))
	defer s.Close()
	appendOK(t, s, user("root"))
	nested := filepath.Join(s.ArtifactsDir(), "Anna.jsonl")
	header := fmt.Sprintf(`{"type":"session","version":3,"id":"n1","timestamp":"2026-11-20T20:17:07.977Z","cwd":%q}`+"\n", cwd)
	if err := errors.Join(os.MkdirAll(filepath.Dir(nested), 0o700), os.WriteFile(nested, []byte(header+say("a", "null")+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	fork, _ := forkOf(t, m, nested, session.ForkOptions{})
	if filepath.Dir(fork.Path()) != filepath.Dir(s.Path()) {
		t.Errorf("it lies at %s", fork.Path())
	}
	sameIDs(t, "entries", ids(t, fork), "a")
}

func TestARootUnderTheSessionItselfIsNoOrphanInAFork(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "2026-11-20T20-17-07-977Z_s1.jsonl", foreignHeader, say("a", "s1")+"\n", say("b", "a")+"\n")
	for _, o := range []session.ForkOptions{{}, {PathOnly: true}, {At: "a"}} {
		fork, _ := forkOf(t, m, path, o)
		noDamage(t, fork)
	}
}

func TestAForkOutsideOfTheHomeIsKnownToIt(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path := filepath.Join(t.TempDir(), "s.jsonl")
	if err := os.WriteFile(path, []byte(foreignHeader+say("a", "null")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, forked := forkOf(t, m, path, session.ForkOptions{})
	all := must(m.Registry())
	if len(all) != 1 || all[0].Path != forked.Path || all[0].Whole {
		t.Errorf("the registry has %+v", all)
	}
}

// awayOnce is a file system on which what lies beside a log is not there for a moment,
// because it was moved and came back.
type awayOnce struct {
	durable.FS
	name string // of what is looked for at that moment
	gone bool
}

func (a *awayOnce) away(name string) error {
	if a.gone || filepath.Base(name) != a.name {
		return nil
	}
	a.gone = true
	return &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func (a *awayOnce) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	if err := a.away(name); err != nil {
		return nil, err
	}
	return a.FS.OpenFile(name, flag, perm)
}

func (a *awayOnce) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := a.away(name); err != nil {
		return nil, err
	}
	return a.FS.ReadDir(name)
}

func (a *awayOnce) Identify(name string) (durable.Identity, error) {
	if err := a.away(name); err != nil {
		return durable.Identity{}, err
	}
	return a.FS.Identify(name)
}

func (a *awayOnce) Link(oldpath, newpath string) error {
	if err := a.away(oldpath); err != nil {
		return err
	}
	return a.FS.Link(oldpath, newpath)
}

func TestAForkOfASessionThatWasAwayForAMomentHasItsArtifacts(t *testing.T) {
	base := newManager(t, session.Options{Durability: session.Flush})
	path, _ := withArtifacts(t, base)
	for _, name := range []string{filepath.Base(strings.TrimSuffix(path, ".jsonl")), "1.bash.log", ".artifact-1.json", "Anna.jsonl"} {
		t.Run(name, func(t *testing.T) {
			fsys := &awayOnce{FS: durable.OS, name: name}
			m := must(session.OpenManager(base.Home(), session.Options{Durability: session.Flush, FS: fsys}))
			fork, forked := forkOf(t, m, path, session.ForkOptions{})
			if !fsys.gone || forked.Artifacts.Linked+forked.Artifacts.Copied+forked.Artifacts.Reflinked != 3 {
				t.Errorf("it was away: %t; got %+v", fsys.gone, forked.Artifacts)
			}
			for i := range int64(3) {
				if got := artifactText(t, fork, i); got != fmt.Sprintf("artifact %d\n", i) {
					t.Errorf("artifact %d holds %q", i, got)
				}
			}
			if _, err := os.Stat(filepath.Join(fork.ArtifactsDir(), "Anna.jsonl")); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestForksOfASessionThatIsMovedHaveItsArtifacts(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	path, entries := withArtifacts(t, m)
	dirs := []string{t.TempDir(), t.TempDir()}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			s := must(m.Find(t.Context(), strings.TrimSuffix(filepath.Base(path), ".jsonl")))
			if _, err := m.Move(t.Context(), s.Path, dirs[i%2], session.MoveOptions{}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	forks := 0
	for try := 0; forks < 20 && try < 1000; try++ {
		at, err := m.Find(t.Context(), strings.TrimSuffix(filepath.Base(path), ".jsonl"))
		if err != nil {
			continue // between two places
		}
		forked, err := m.Fork(t.Context(), at.Path, session.ForkOptions{})
		if err != nil {
			continue // it says that the session was moved; nothing is there
		}
		forks++
		fork := reopen(t, m, forked.Path)
		sameIDs(t, "entries", ids(t, fork), entries...)
		for i := range int64(3) {
			if got := artifactText(t, fork, i); got != fmt.Sprintf("artifact %d\n", i) {
				t.Errorf("artifact %d holds %q", i, got)
			}
		}
		fork.Close()
	}
	close(stop)
	wg.Wait()
	t.Logf("%d forks", forks)
	if forks == 0 {
		t.Error("there was no fork at all")
	}
}

// shared is a file system whose files can be cloned; see reflinking in package
// artifacts.
type shared struct{ durable.FS }

func (s shared) OpenFile(name string, flag int, perm fs.FileMode) (durable.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return sharedFile{f}, nil
}

type sharedFile struct{ durable.File }

func (f sharedFile) CloneFrom(src durable.File) error {
	at, err := src.Identify()
	if err != nil {
		return err
	}
	if err := durable.Copy(f.File, src, 0, at.Size); err != nil {
		return err
	}
	_, err = f.Seek(0, io.SeekStart) // a clone moves no offset
	return err
}

func TestAForkByReflinkIsTheSameFork(t *testing.T) {
	m := newManager(t, session.Options{FS: shared{durable.OS}})
	s := newSession(t, m)
	var all []string
	for i := range 20 {
		all = append(all, appendOK(t, s, user(fmt.Sprint(i))))
	}
	for at, want := range map[string][]string{"": all, all[7]: all[:8], all[19]: all} {
		fork, _ := forkOf(t, m, s.Path(), session.ForkOptions{At: at})
		sameIDs(t, "entries", ids(t, fork), want...)
		if !strings.HasPrefix(body(t, s.Path()), body(t, fork.Path())) {
			t.Error("its lines are others")
		}
		noDamage(t, fork)
	}
	// With an end that has to be mended.
	f := must(os.OpenFile(s.Path(), os.O_WRONLY|os.O_APPEND, 0))
	must(f.WriteString(say("last", all[19])))
	f.Close()
	fork, _ := forkOf(t, m, s.Path(), session.ForkOptions{})
	sameIDs(t, "entries", ids(t, fork), append(slices.Clone(all), "last")...)
	noDamage(t, fork)
}

func TestForksOfASessionThatIsWrittenHaveWholeLinesAndWhatTheyCite(t *testing.T) {
	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("first"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			mine := must(m.Open(t.Context(), s.Path()))
			defer mine.Close()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprintf("writer %d, output %d\n", w, i)
				id := artifactOf(t, mine, text)
				appendOK(t, mine, user(fmt.Sprintf("artifact://%d holds %s", id, text)))
			}
		})
	}
	var forks []session.Forked
	var mu sync.Mutex
	var forking sync.WaitGroup
	for range 2 { // two at once
		forking.Go(func() {
			for range 15 {
				forked, err := m.Fork(t.Context(), s.Path(), session.ForkOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				forks = append(forks, forked)
				mu.Unlock()
			}
		})
	}
	forking.Wait()
	close(stop)
	wg.Wait()
	all := ids(t, s)
	for _, forked := range forks {
		fork := reopen(t, m, forked.Path)
		noDamage(t, fork)
		got := ids(t, fork)
		if len(got) > len(all) || !slices.Equal(got, all[:len(got)]) {
			t.Fatalf("%s is no prefix", forked.Path)
		}
		top := int64(-1)
		for e, err := range fork.Entries(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			var id int64
			var m struct{ Message struct{ Content string } }
			if e.Decode(&m) != nil {
				continue
			}
			if n, _ := fmt.Sscanf(m.Message.Content, "artifact://%d", &id); n == 1 {
				_, want, _ := strings.Cut(m.Message.Content, " holds ")
				if got := artifactText(t, fork, id); got != want {
					t.Fatalf("artifact %d of %s holds %q, want %q", id, fork.Path(), got, want)
				}
				top = max(top, id)
			}
		}
		if id := artifactOf(t, fork, "its own\n"); id <= top {
			t.Errorf("artifact %d was given again", id)
		}
		for _, f := range forked.Artifacts.Failed {
			t.Errorf("failed: %v", f)
		}
		fork.Close()
	}
}
