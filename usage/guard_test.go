package usage_test

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

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/usage"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// homeWith makes a home with settings.
func homeWith(t *testing.T, settings string) string {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(config.Path(home), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

func user(text string) entry.Body {
	return entry.MessageBody{Message: must(json.Marshal(map[string]any{"role": "user", "content": text, "timestamp": 1}))}
}

func fill(t *testing.T, path string, size int) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func TestAHomeWithoutQuotasHasNoGuard(t *testing.T) {
	for _, settings := range []string{`{}`, `{"retention":{"trash":"1d"}}`} {
		if g := usage.Open(homeWith(t, settings), usage.Options{}); g != nil {
			t.Errorf("%s has a guard", settings)
		}
	}
	var none *usage.Guard
	none.Close()
}

func TestSettingsWithAMistakeLetNothingBeKept(t *testing.T) {
	g := usage.Open(homeWith(t, `{"quota":{"home":{"log":"much"}}}`), usage.Options{})
	_, aerr := g.Artifacts("dir", 1)
	for _, err := range []error{g.Log(0, 1), g.Blob(0, 1, true), aerr} {
		if err == nil || errors.Is(err, usage.ErrQuota) {
			t.Errorf("got %v", err)
		}
	}
}

func TestAMisspeltLimitIsToldOfOnceAndStopsNobody(t *testing.T) {
	var told []string
	home := homeWith(t, "{\"quota\":{\n\"sesion\":{\"log\":1}}}")
	g := usage.Open(home, usage.Options{Mistake: func(u config.Unknown) { told = append(told, u.String()) }})
	if len(told) != 0 {
		t.Errorf("nothing was to be kept yet, and it tells of %v", told)
	}
	for range 3 {
		_, err := g.Artifacts("dir", 5)
		if err := errors.Join(g.Log(0, 5), g.Blob(0, 5, true), err); err != nil {
			t.Error(err)
		}
	}
	if want := config.Path(home) + `:2: "quota.sesion" is no setting and does nothing; did you mean quota.session?`; len(told) != 1 || told[0] != want {
		t.Errorf("told of %q", told)
	}
}

func TestALimitIsWarnedOfOnceAndThenHolds(t *testing.T) {
	var warned []usage.Limit
	home := homeWith(t, `{"quota":{"session":{"log":1000,"blobs":1000}}}`)
	g := usage.Open(home, usage.Options{Warn: func(l usage.Limit) { warned = append(warned, l) }})
	for _, size := range []int64{0, 700, 790, 900} {
		if err := g.Log(size, 100); err != nil {
			t.Fatal(err)
		}
	}
	err := g.Log(901, 100)
	var q *usage.QuotaError
	if !errors.Is(err, usage.ErrQuota) || !errors.As(err, &q) || q.Scope != usage.OfSession || q.Class != usage.Log || q.Limit.Limit != 1000 {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), config.Path(home)) || !strings.Contains(err.Error(), "quota.session.log") {
		t.Errorf("it does not say what to do: %v", err)
	}
	if len(warned) != 1 || warned[0].Used != 800 {
		t.Errorf("warned of %v", warned)
	}
	if err := g.Blob(950, 100, false); !errors.Is(err, usage.ErrQuota) {
		t.Errorf("a blob that others have as well: %v", err)
	}
	if _, err := os.Stat(filepath.Join(home, "usage.json")); err == nil {
		t.Error("limits of sessions need no totals of the home")
	}
}

func TestAnAppendFarFromAnyLimitAllocatesNothing(t *testing.T) {
	home := homeWith(t, `{"quota":{"session":{"log":"1GB","artifacts":"1GB"},"home":{"log":"1GB","artifacts":"1GB","blobs":"1GB"}}}`)
	g := usage.Open(home, usage.Options{})
	dir := filepath.Join(home, "sessions", "-p", "s")
	ask := func() {
		_, err := g.Artifacts(dir, 1000)
		if err := errors.Join(g.Log(5000, 700), err); err != nil {
			t.Fatal(err)
		}
		g.Logged(-20)
	}
	ask() // counts the home
	if n := testing.AllocsPerRun(100, ask); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestTheHomeIsCountedAgainBeforeARefusal(t *testing.T) {
	home := homeWith(t, `{"quota":{"home":{"blobs":1000}}}`)
	blob := filepath.Join(home, "blobs", strings.Repeat("a", 64))
	fill(t, blob, 950)
	now := time.Now()
	g := usage.Open(home, usage.Options{Now: func() time.Time { return now }})
	if err := g.Blob(0, 100, true); !errors.Is(err, usage.ErrQuota) {
		t.Fatalf("got %v", err)
	}
	if err := g.Blob(0, 100, false); err != nil {
		t.Errorf("a blob that is there already takes no room: %v", err)
	}
	if err := os.Remove(blob); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if err := g.Blob(0, 100, true); err != nil {
		t.Errorf("room that was made is not seen: %v", err)
	}
}

func TestTotalsOutliveTheirProcessAndTheirLoss(t *testing.T) {
	home := homeWith(t, `{"quota":{"home":{"log":1000000}}}`)
	for range 3 {
		g := usage.Open(home, usage.Options{})
		if err := g.Log(0, 1000); err != nil {
			t.Fatal(err)
		}
		g.Close()
	}
	name := filepath.Join(home, "usage.json")
	var total struct{ Log int64 }
	if err := json.Unmarshal(must(os.ReadFile(name)), &total); err != nil || total.Log != 3000 {
		t.Errorf("%+v, %v", total, err)
	}
	fill(t, filepath.Join(home, "sessions", "-p", "s.jsonl"), 500)
	for _, content := range []string{"", "{", `{"log":-1}`, "\x00\x00", strings.Repeat("x", 1<<20)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		g := usage.Open(home, usage.Options{})
		err := g.Log(0, 1)
		g.Close()
		if jerr := json.Unmarshal(must(os.ReadFile(name)), &total); err != nil || jerr != nil || total.Log != 501 {
			t.Errorf("behind %.10q: %+v, %v, %v", content, total, err, jerr)
		}
	}
}

func TestWritersAtOnceOvershootByNoMoreThanTold(t *testing.T) {
	const limit, writers = 4 << 20, 8
	home := homeWith(t, fmt.Sprintf(`{"quota":{"home":{"artifacts":%d}}}`, limit))
	var mu sync.Mutex
	var kept int64
	var all sync.WaitGroup
	for i := range writers {
		g := usage.Open(home, usage.Options{}) // as a process of its own
		all.Go(func() {
			defer g.Close()
			dir := filepath.Join(home, "sessions", "-p", fmt.Sprint("s", i))
			for {
				n, err := g.Artifacts(dir, 10_000)
				mu.Lock()
				kept += n
				mu.Unlock()
				if err != nil {
					return
				}
				name := filepath.Join(dir, fmt.Sprintf("%d.bash.log", i))
				f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if errors.Is(err, os.ErrNotExist) {
					if err = os.MkdirAll(dir, 0o700); err == nil {
						f, err = os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
					}
				}
				if err == nil {
					_, err = f.Write(make([]byte, n))
					err = errors.Join(err, f.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if kept < limit/2 || kept > limit+writers*(64<<10+10_000) {
		t.Errorf("%d bytes of %d were kept", kept, limit)
	}
}

func TestAccountingThatFailsStopsNobody(t *testing.T) {
	run := func(t *testing.T, fsys durable.FS) {
		home := homeWith(t, `{"quota":{"home":{"log":1000000}}}`)
		g := usage.Open(home, usage.Options{FS: fsys})
		for range 3 {
			if err := g.Log(0, 200_000); err != nil {
				t.Errorf("refused: %v", err)
			}
		}
		g.Close()
		// Whatever became of the file: who comes next has totals that hold.
		next := usage.Open(home, usage.Options{})
		if err := next.Log(0, 1); err != nil {
			t.Errorf("the next one is refused: %v", err)
		}
	}
	for _, fault := range []error{unix.EIO, unix.ENOSPC, faultfs.ErrCrashed} {
		for n := 0; ; n++ {
			fsys := faultfs.New(durable.OS)
			fsys.FailAt(n, fault)
			run(t, fsys)
			if !fsys.Fired() {
				if n == 0 {
					t.Fatal("no operation was reached")
				}
				break
			}
		}
	}
}

func TestARefusedEntryIsNotAcceptedAndCostsNothingThatWas(t *testing.T) {
	home := homeWith(t, `{"quota":{"session":{"log":3000,"blobs":700000}}}`)
	m := must(session.OpenManager(home, session.Options{Durability: session.Flush, Quota: usage.Open(home, usage.Options{})}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	var kept []string
	refused := 0
	for i := range 30 {
		id, err := s.Append(t.Context(), user(fmt.Sprintf("%d %s", i, strings.Repeat("x", 100))))
		var pending *session.PendingError
		switch {
		case err == nil:
			kept = append(kept, id)
		case errors.As(err, &pending) || !errors.Is(err, usage.ErrQuota) || id != "":
			t.Fatalf("entry %q: %v", id, err)
		default:
			refused++
		}
	}
	if len(kept) == 0 || refused == 0 {
		t.Fatalf("%d kept, %d refused", len(kept), refused)
	}
	if _, err := s.AppendAll(t.Context(), user("a"), user(strings.Repeat("y", 5000))); !errors.Is(err, usage.ErrQuota) {
		t.Errorf("AppendAll: %v", err)
	}
	// What has begun may end.
	end, err := s.AppendBeside(t.Context(), kept[len(kept)-1], user("the end"), user("back"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("something is pending: %v", err)
	}
	var got []string
	for e, err := range must(m.View(t.Context(), s.Path())).Entries(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID())
	}
	if want := append(kept, end); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log has %v, accepted were %v", got, want)
	}
}

func TestABlobThatHasNoRoomIsNotStored(t *testing.T) {
	home := homeWith(t, `{"quota":{"session":{"blobs":700000}}}`)
	m := must(session.OpenManager(home, session.Options{Durability: session.Flush, Quota: usage.Open(home, usage.Options{})}))
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	first, second := strings.Repeat("one ", 150_000), strings.Repeat("two ", 150_000) // 600,000 bytes each
	must(s.Append(t.Context(), user(first)))
	must(s.Append(t.Context(), user(first))) // the same blob again takes no room
	if _, err := s.Append(t.Context(), user(second)); !errors.Is(err, usage.ErrQuota) {
		t.Errorf("got %v", err)
	}
	var blobs int
	for _, e := range must(os.ReadDir(filepath.Join(home, "blobs"))) {
		if len(e.Name()) == 64 {
			blobs++
		}
	}
	if blobs != 1 {
		t.Errorf("%d blobs", blobs)
	}
	must(s.Append(context.Background(), user("and it goes on")))
}
