package catalog

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

// fill puts n logs into c, enough for the cache to be used.
func fill(t *testing.T, c *Catalog, n int) {
	t.Helper()
	for i := range n {
		put(t, c, fmt.Sprintf("-d%d/s%02d.jsonl", i%3, i), header(fmt.Sprintf("id%02d", i), "/home/u"), i)
	}
	put(t, c, "-d0/bad.jsonl", "{}\n", n)
}

// opens counts what a listing opens besides the cache.
type opens struct {
	durable.FS
	names []string
}

func (o *opens) OpenFile(name string, flag int, perm os.FileMode) (durable.File, error) {
	if strings.HasSuffix(name, PlainExt) {
		o.names = append(o.names, filepath.Base(name))
	}
	return o.FS.OpenFile(name, flag, perm)
}

func TestASecondListingOpensOnlyWhatChanged(t *testing.T) {
	first := open(t)
	fill(t, first, 20)
	want := list(t, first, "")
	if len(want.Sessions) != 20 || len(want.Unreadable) != 1 {
		t.Fatalf("%d sessions, %v", len(want.Sessions), want.Unreadable)
	}
	old := workers
	workers = 1 // for the counter's sake
	defer func() { workers = old }()
	o := &opens{FS: durable.OS}
	c := Open(first.home, Options{FS: o, Roots: &testRoots})
	if diff := cmp.Diff(want, list(t, c, "")); diff != "" {
		t.Errorf("cached:\n%s", diff)
	}
	if len(o.names) != 0 {
		t.Errorf("opened %v", o.names)
	}
	put(t, c, "-d1/s01.jsonl", header("changed", "/home/u"), 99) // the same size
	put(t, c, "-d1/new.jsonl", header("new", "/home/u"), 98)
	if err := os.Remove(filepath.Join(SessionsDir(c.home), "-d2/s02.jsonl")); err != nil {
		t.Fatal(err)
	}
	l := list(t, c, "")
	if got := fmt.Sprint(o.names); got != "[new.jsonl s01.jsonl]" {
		t.Errorf("opened %s", got)
	}
	if got := ids(l); len(l.Sessions) != 20 || !strings.HasPrefix(got, "changed new id19") || strings.Contains(got, "id02") {
		t.Errorf("%s", got)
	}
	data, err := os.ReadFile(CachePath(c.home))
	if err != nil || len(parseCache(data)) != 21 || strings.Contains(string(data), "s02") {
		t.Errorf("%v\n%s", err, data)
	}
}

func TestListingOneDirectoryKeepsTheOthersInTheCache(t *testing.T) {
	c := open(t)
	for i := range 20 {
		put(t, c, fmt.Sprintf("-a/s%02d.jsonl", i), header(fmt.Sprint("a", i), "/home/u/a"), i)
		put(t, c, fmt.Sprintf("-b/s%02d.jsonl", i), header(fmt.Sprint("b", i), "/home/u/b"), i)
	}
	list(t, c, "")
	put(t, c, "-a/s00.jsonl", header("changed", "/home/u/a"), 99)
	list(t, c, "/home/u/a")
	data, err := os.ReadFile(CachePath(c.home))
	if entries := parseCache(data); err != nil || len(entries) != 40 || entries["-a/s00.jsonl"].head.ID != "changed" {
		t.Errorf("%v, %d entries", err, len(entries))
	}
}

func TestALogThatMayStillChangeUnseenIsNotCached(t *testing.T) {
	c := open(t)
	fill(t, c, 20)
	path := put(t, c, "-d0/fresh.jsonl", header("fresh", "/home/u"), 0)
	at := day.Add(1234567 * time.Nanosecond)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		now   time.Time
		known bool
	}{
		{"in the tick of its change", at.Add(5 * time.Millisecond), false},
		{"by a clock that is behind", at.Add(-5 * time.Millisecond), false},
		{"long after", at.Add(time.Second), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			os.Remove(CachePath(c.home))
			c := Open(c.home, Options{Now: func() time.Time { return tt.now }})
			list(t, c, "")
			data, _ := os.ReadFile(CachePath(c.home))
			if _, known := parseCache(data)["-d0/fresh.jsonl"]; known != tt.known {
				t.Errorf("in the cache: %v", known)
			}
		})
	}
	t.Run("whole seconds are a coarse clock", func(t *testing.T) {
		if (stamp{mtime: day.UnixNano()}).settled(day.Add(time.Second)) {
			t.Error("settled within the tick")
		}
	})
}

func TestADamagedCacheCostsOnlyTime(t *testing.T) {
	c := open(t)
	fill(t, c, 20)
	want := list(t, c, "")
	good, err := os.ReadFile(CachePath(c.home))
	if err != nil {
		t.Fatal(err)
	}
	forged := appendCache(nil, cache{"../../etc/passwd": {head: head{ID: "evil"}}})
	for name, data := range map[string][]byte{
		"empty": {}, "torn": good[:len(good)/2], "a version of the future": []byte(strings.Replace(string(good), " 1 ", " 2 ", 1)),
		"a flipped bit": append(good[:len(good)-3:len(good)-3], good[len(good)-3]^1, good[len(good)-2], '\n'),
		"zeros":         make([]byte, 4096), "a path out of the home": forged,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(CachePath(c.home), data, 0o600); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, list(t, c, "")); diff != "" {
				t.Error(diff)
			}
			if now, err := os.ReadFile(CachePath(c.home)); err != nil || string(now) != string(good) {
				t.Errorf("not rebuilt: %v", err)
			}
		})
	}
	t.Run("a link in its place is not followed", func(t *testing.T) {
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(CachePath(c.home))
		if err := os.Symlink(victim, CachePath(c.home)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, list(t, c, "")); diff != "" {
			t.Error(diff)
		}
		if data, _ := os.ReadFile(victim); string(data) != "precious" {
			t.Errorf("victim holds %q", data)
		}
	})
}

// Every write that keeping the cache takes is made to fail once.
func TestACacheThatCannotBeWrittenIsNoError(t *testing.T) {
	seed := open(t)
	fill(t, seed, 20)
	want := list(t, Open(seed.home, Options{}), "")
	for name, arm := range map[string]func(*faultfs.FS, int){
		"an input-output error": func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk":           (*faultfs.FS).FullAt,
		"the end":               (*faultfs.FS).CrashAt,
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				if err := os.Remove(CachePath(seed.home)); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				fsys := faultfs.New(durable.OS)
				arm(fsys, n)
				c := Open(seed.home, Options{FS: fsys})
				if diff := cmp.Diff(want, list(t, c, "")); diff != "" {
					t.Fatalf("fault %d:\n%s", n, diff)
				}
				data, err := os.ReadFile(CachePath(seed.home))
				if !fsys.Fired() {
					if n == 0 || len(parseCache(data)) != 21 {
						t.Fatalf("%d operations made the cache %q", n, data)
					}
					break
				}
				if err == nil && len(parseCache(data)) != 21 {
					t.Fatalf("fault %d left a third state: %q", n, data)
				}
			}
		})
	}
}

func TestCacheRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringN(1, 40, 200)
		c := cache{}
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			e := cached{stamp: stamp{ino: uint64(rapid.Int64Min(0).Draw(t, "ino")), size: rapid.Int64Min(0).Draw(t, "size"), mtime: rapid.Int64().Draw(t, "mtime")}}
			if rapid.Bool().Draw(t, "bad") {
				e.reason = key.Draw(t, "reason")
			} else {
				e.head = head{
					ID: rapid.String().Draw(t, "id"), CWD: rapid.String().Draw(t, "cwd"), Title: rapid.String().Draw(t, "title"),
					Parent: rapid.String().Draw(t, "parent"), Version: rapid.IntRange(0, math.MaxInt32).Draw(t, "version"),
				}
				if rapid.Bool().Draw(t, "timed") {
					e.head.Created = time.Unix(rapid.Int64Range(minSecond, maxSecond).Draw(t, "s"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC()
				}
			}
			c[key.Draw(t, "key")] = e
		}
		got := parseCache(appendCache(nil, c))
		if !maps.Equal(got, c) {
			t.Fatalf("%v came back as %v", c, got)
		}
	})
}

func FuzzParseCache(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("s\t-a/x.jsonl\t7\t512\t1778547747657000000\tid\t3\t1778547747.657000000\t/home/u/a\ta \\t title\\\\\tparent\n"))
	f.Add([]byte("u\t-a/y.jsonl\t8\t2\t-1\tits first line is no session header\n"))
	f.Add([]byte("s\tk\t1\t2\t3\t\\\t0\t\t\t\t\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		parseCache(body)
		sealed := appendCache(nil, nil)
		sealed = append(sealed[:len(sealed)-9], fmt.Sprintf("%08x\n%s", checksum(body), body)...)
		c := parseCache(sealed)
		if c == nil {
			return
		}
		for key, e := range c {
			if key == "" || e.stamp.size < 0 || e.head.Version < 0 {
				t.Errorf("%q: %v", key, e)
			}
		}
		if again := parseCache(appendCache(nil, c)); !maps.Equal(again, c) {
			t.Errorf("%v came back as %v", c, again)
		}
	})
}
