package catalog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// manySessions makes n logs of about 60 KB with headers as agentrun pads them,
// spread over dirs directories. titled headers need no look at the tail.
func manySessions(tb testing.TB, n, dirs int, titled bool) *Catalog {
	tb.Helper()
	home, err := os.MkdirTemp("", "catalog")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(home) })
	c := Open(home, Options{Roots: &testRoots})
	line := `{"type":"message","id":"1ab51a1c","parentId":null,"timestamp":"2026-07-14T01:30:48.598Z","message":{"role":"user","content":[{"type":"text","text":"` + strings.Repeat("list_the files and say what they_do ", 20) + `"}]}}` + "\n"
	body := strings.Repeat(line, 70)
	for i := range n {
		created := day.Add(time.Duration(i) * time.Second)
		id := fmt.Sprintf("019e19b4-eb48-746a-aa6b-%012x", i)
		name, err := FileName(created, id)
		if err != nil {
			tb.Fatal(err)
		}
		title := ""
		if titled {
			title = fmt.Sprintf("Session %d", i)
		}
		cwd := fmt.Sprintf("/home/u/project%d", i%dirs)
		head := fmt.Sprintf(`{"type":"session","version":3,"id":%q,"timestamp":%q,"cwd":%q,"title":%q,"pad":""}`, id, created.Format(isoLayout), cwd, title)
		head = strings.Replace(head, `"pad":"`, `"pad":"`+strings.Repeat(" ", 510-len(head)), 1)
		path := filepath.Join(SessionsDir(home), testRoots.Encode(cwd), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(head+"\n"+body), 0o600); err != nil {
			tb.Fatal(err)
		}
		at := created.Add(time.Hour)
		if err := os.Chtimes(path, at, at); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

func BenchmarkList1000(b *testing.B) {
	ctx := context.Background()
	for _, dirs := range []int{1, 20, 1000} {
		for _, titled := range []bool{true, false} {
			c := manySessions(b, 1000, dirs, titled)
			list := func(b *testing.B) {
				l, err := c.List(ctx, "")
				if err != nil || len(l.Sessions) != 1000 {
					b.Fatal(len(l.Sessions), err)
				}
			}
			name := fmt.Sprintf("dirs=%d/titled=%v/", dirs, titled)
			b.Run(name+"cold", func(b *testing.B) {
				for b.Loop() {
					os.Remove(CachePath(c.home))
					list(b)
				}
			})
			list(b)
			b.Run(name+"cached", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					list(b)
				}
			})
			// The opponent: the system calls that a listing without a cache cannot
			// do without, and not a byte looked at.
			b.Run(name+"bare", func(b *testing.B) {
				buf := make([]byte, headBytes)
				for b.Loop() {
					paths, _ := filepath.Glob(SessionsDir(c.home) + "/*/*" + PlainExt)
					for _, p := range paths {
						if _, err := os.Lstat(p); err != nil {
							b.Fatal(err)
						}
						f, err := os.Open(p)
						if err != nil {
							b.Fatal(err)
						}
						if _, err := f.Read(buf); err != nil {
							b.Fatal(err)
						}
						f.Close()
					}
				}
			})
		}
	}
}

func BenchmarkFind(b *testing.B) {
	c := manySessions(b, 1000, 20, true)
	for _, arg := range []string{"019e19b4-eb48-746a-aa6b-0000000001f4", "2026-05-12T10-08-20"} {
		b.Run(arg, func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Find(b.Context(), arg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewest(b *testing.B) {
	c := manySessions(b, 1000, 1, true)
	for b.Loop() {
		if _, ok, err := c.Newest(b.Context(), "/home/u/project0"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkLastRename(b *testing.B) {
	tail := []byte(strings.Repeat(`{"type":"message","text":"list_the files and say what they_do"}`+"\n", tailBytes/64))
	b.SetBytes(int64(len(tail)))
	for b.Loop() {
		lastRename(tail)
	}
}
