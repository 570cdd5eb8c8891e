// Package search measures the search of a home of 1 GiB: the index's making, queries
// with it, and ripgrep over the same files where it is installed.
package search

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/search"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// corpusBytes is the size of the corpus; -short makes a small one.
func corpusBytes() int64 {
	if testing.Short() {
		return 16 << 20
	}
	return 1 << 30
}

// queries are asked of the index and of ripgrep. The patterns find what agentrun
// finds, or more.
var queries = []struct {
	name  string
	words []string
	regex bool
	rg    []string
}{
	{"one line of the corpus", []string{"needle-in-a-haystack-7731"}, false, []string{"-iF", "needle-in-a-haystack-7731"}},
	{"in every artifact", []string{"error"}, false, []string{"-iF", "error"}},
	{"part of an identifier", []string{"pooltimeout"}, false, []string{"-iF", "pooltimeout"}},
	{"two words", []string{"connection", "refused"}, false, []string{"-i", "connection.*refused|refused.*connection"}},
	{"two frequent words", []string{"nightly", "build"}, false, []string{"-i", "nightly.*build|build.*nightly"}},
	{"two frequent words of lines", []string{"error", "connection"}, false, []string{"-i", "error.*connection|connection.*error"}},
	{"beginning of many words", []string{"con"}, false, []string{"-iF", "con"}},
	{"a number", []string{"200"}, false, []string{"-F", "200"}},
	{"CJK", []string{"数据库连接"}, false, []string{"-F", "数据库连接"}},
	{"CJK, frequent", []string{"连接"}, false, []string{"-F", "连接"}},
	{"CJK, one character", []string{"库"}, false, []string{"-F", "库"}},
	{"nowhere, of common parts", []string{"2031-01-01"}, false, []string{"-F", "2031-01-01"}},
	{"regex", []string{`rotated by worker [0-9]+ after`}, true, []string{`rotated by worker [0-9]+ after`}},
}

func BenchmarkSearch(b *testing.B) {
	m, size := corpus(b)
	x := search.New(m, search.Options{})
	ctx := context.Background()
	b.Run("index", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if err := x.Rebuild(ctx); err != nil {
				b.Fatal(err)
			}
		}
		var n int64
		for _, name := range []string{"search.db", "search.db-wal"} {
			if info, err := os.Stat(filepath.Join(m.Home(), name)); err == nil {
				n += info.Size()
			}
		}
		b.ReportMetric(100*float64(n)/float64(size), "%size")
	})
	if err := x.Update(ctx); err != nil { // when the sub-benchmark above was not chosen
		b.Fatal(err)
	}
	b.Run("query", func(b *testing.B) {
		for _, q := range queries {
			b.Run(q.name, func(b *testing.B) {
				hits := 0
				for b.Loop() {
					res, err := x.Search(ctx, search.Query{Words: q.words, Regexp: q.regex}, func(search.Hit) bool { return true })
					if err != nil {
						b.Fatal(err)
					}
					hits = res.Hits
				}
				b.ReportMetric(float64(hits), "hits")
			})
		}
	})
	b.Run("scan", func(b *testing.B) {
		b.SetBytes(size)
		for _, q := range queries {
			b.Run(q.name, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					if _, err := x.Search(ctx, search.Query{Words: q.words, Regexp: q.regex, NoIndex: true}, func(search.Hit) bool { return true }); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
	b.Run("rg", func(b *testing.B) {
		rg, err := exec.LookPath("rg")
		if err != nil {
			b.Skip("ripgrep is not installed")
		}
		for _, q := range queries {
			b.Run(q.name, func(b *testing.B) {
				b.SetBytes(size)
				for b.Loop() {
					cmd := exec.Command(rg, append(append([]string{"--no-config", "-uuu", "-n", "--max-count", "10"}, q.rg...), filepath.Join(m.Home(), "sessions"))...)
					var none *exec.ExitError // 1 says that nothing was found
					if err := cmd.Run(); err != nil && (!errors.As(err, &none) || none.ExitCode() != 1) {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

// corpus makes a home of logs and artifacts, the same every time.
func corpus(b *testing.B) (*session.Manager, int64) {
	home := filepath.Join(b.TempDir(), "home")
	m, err := session.OpenManager(home, session.Options{Durability: session.Flush})
	if err != nil {
		b.Fatal(err)
	}
	g := &generator{rand: rand.New(rand.NewPCG(4, 2))}
	cwd := b.TempDir()
	const sessions = 64
	var size int64
	for i := range sessions {
		s, err := m.Create(context.Background(), cwd, session.CreateOptions{Title: fmt.Sprint("session ", i)})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Append(context.Background(), entry.UserText("Find out why the nightly build fails.")); err != nil {
			b.Fatal(err)
		}
		s.Close()
		// One part in four of the bytes are logs, the rest is what tools put out.
		size += g.file(b, s.Path(), corpusBytes()/sessions/4, g.logLine)
		if err := os.Mkdir(s.ArtifactsDir(), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			b.Fatal(err)
		}
		for n := range 4 {
			name := filepath.Join(s.ArtifactsDir(), fmt.Sprintf("%d.bash.log", n))
			line := g.outputLine
			if n == 3 {
				line = g.codeLine
			}
			size += g.file(b, name, corpusBytes()/sessions/16*3, line)
			if i == sessions/2 && n == 1 {
				appendTo(b, name, "here is the needle-in-a-haystack-7731 at last\n")
			}
		}
	}
	// What is measured must not wait until the corpus itself is on the disk.
	unix.Sync()
	b.Logf("%d MB in %d sessions", size/1e6, sessions)
	return m, size
}

func appendTo(b *testing.B, name, text string) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = f.WriteString(text)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.Fatal(err)
	}
}

type generator struct {
	rand *rand.Rand
	n    int
}

func (g *generator) file(b *testing.B, name string, size int64, line func() string) int64 {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	var n int64
	for n < size {
		l := line()
		n += int64(len(l)) + 1
		w.WriteString(l)
		w.WriteByte('\n')
	}
	if err := errors.Join(w.Flush(), f.Close()); err != nil {
		b.Fatal(err)
	}
	return n
}

var (
	verbs  = strings.Fields("Open Close Read Write Parse Flush Sync Merge Split Encode Decode Append Remove Rename Fetch Push Check Verify Build Find")
	nouns  = strings.Fields("Session Entry Log Index Artifact Blob Store Reader Writer Buffer Stream Queue Lease Lock Cache Header Footer Frame Chunk Token Pool Timeout Connection Request")
	plain  = strings.Fields("the build of this package failed because a test did not find its file and the cache was stale so we ran it again with more output to see which step takes so long it seems that nobody closes the connection when the server is restarted")
	levels = strings.Fields("DEBUG DEBUG DEBUG INFO INFO INFO INFO WARN error")
	cjk    = []rune("数据库连接失败请重试服务器超时文件不存在权限被拒绝正在编译测试通过错误警告日志会话索引搜索内容存储")
)

func pick[T any](g *generator, list []T) T { return list[g.rand.IntN(len(list))] }

func (g *generator) identifier() string {
	id := pick(g, verbs) + pick(g, nouns)
	if g.rand.IntN(2) == 0 {
		id += pick(g, nouns)
	}
	return id
}

func (g *generator) sentence(n int) string {
	words := make([]string, n)
	for i := range words {
		words[i] = pick(g, plain)
	}
	return strings.Join(words, " ")
}

// outputLine is a line of a service's log.
func (g *generator) outputLine() string {
	g.n++
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(g.n) * 37 * time.Millisecond)
	msg := ""
	switch g.rand.IntN(8) {
	case 0:
		msg = fmt.Sprintf("GET /api/v2/%s/%d 200 %dms", strings.ToLower(pick(g, nouns)), g.rand.IntN(1e6), g.rand.IntN(900))
	case 1:
		msg = fmt.Sprintf("%s: dial tcp 10.%d.%d.%d:5432: connect: connection refused", g.identifier(), g.rand.IntN(256), g.rand.IntN(256), g.rand.IntN(256))
	case 2:
		msg = fmt.Sprintf("commit %016x%016x%08x", g.rand.Uint64(), g.rand.Uint64(), g.rand.Uint32())
	case 3:
		text := make([]rune, 12)
		for i := range text {
			text[i] = pick(g, cjk)
		}
		if g.rand.IntN(2000) == 0 {
			copy(text, []rune("数据库连接"))
		}
		msg = string(text)
	default:
		msg = g.identifier() + ": " + g.sentence(8)
	}
	return fmt.Sprintf("%s %-5s [worker-%d] %s", at.Format("2006-01-02T15:04:05.000Z"), pick(g, levels), g.rand.IntN(64), msg)
}

// codeLine is a line of a program or a test.
func (g *generator) codeLine() string {
	switch g.rand.IntN(4) {
	case 0:
		return fmt.Sprintf("func (s *%s) %s(ctx context.Context, n int) error {", pick(g, nouns), g.identifier())
	case 1:
		return fmt.Sprintf("\tif err := s.%s(ctx, %d); err != nil {", g.identifier(), g.rand.IntN(1000))
	case 2:
		return fmt.Sprintf("--- PASS: Test%s/%s_%d (%.2fs)", g.identifier(), strings.ToLower(pick(g, verbs)), g.rand.IntN(100), g.rand.Float64())
	}
	return fmt.Sprintf("%s/%s_%s.go:%d:%d: %s", strings.ToLower(pick(g, nouns)), strings.ToLower(pick(g, verbs)), strings.ToLower(pick(g, nouns)), g.rand.IntN(900), g.rand.IntN(80), g.sentence(6))
}

// logLine is an entry.
func (g *generator) logLine() string {
	g.n++
	text := g.sentence(20 + g.rand.IntN(200))
	if g.rand.IntN(3) == 0 {
		var b strings.Builder
		for range 20 {
			b.WriteString(g.outputLine() + "\n")
		}
		text = b.String()
	}
	content, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{"type":"message","id":"%024x","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":[{"type":"text","text":%s}],"timestamp":1767323045000}}`, g.n, content)
}
