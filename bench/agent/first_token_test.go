package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
)

// pieces are how many pieces of text a provider streams in a run, each of which is waited for on the screen before the next
// one is sent.
const pieces = 100

// BenchmarkStreamedToken is how long a piece of text takes from the moment at which a provider on this machine has sent it
// until agentrun run has printed it: p50-ms and max-ms of the pieces, and first-ms of the first one. Limit: 5 ms. A whole run
// is one iteration.
func BenchmarkStreamedToken(b *testing.B) {
	dir := b.TempDir()
	bin := filepath.Join(dir, "agentrun")
	build := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "github.com/agentrun/agentrun/cmd/agentrun")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	// Here the lines of the pieces are looked for in what was printed.
	for _, screen := range []struct {
		name  string
		start func(cmd *exec.Cmd) (io.Reader, error)
	}{
		{"terminal", func(cmd *exec.Cmd) (io.Reader, error) {
			return pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
		}},
		{"pipe", func(cmd *exec.Cmd) (io.Reader, error) {
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			return out, err
		}},
	} {
		b.Run(screen.name, func(b *testing.B) {
			var first, all []time.Duration
			for b.Loop() {
				took := streamed(b, bin, screen.start)
				first, all = append(first, took[0]), append(all, took...)
			}
			slices.Sort(first)
			slices.Sort(all)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(first[len(first)/2]), "first-ms")
			b.ReportMetric(ms(all[len(all)/2]), "p50-ms")
			b.ReportMetric(ms(all[len(all)-1]), "max-ms")
		})
	}
}

// streamed runs agentrun once and returns what each piece of text took.
func streamed(b *testing.B, bin string, start func(*exec.Cmd) (io.Reader, error)) []time.Duration {
	b.Helper()
	shown := make(chan struct{}, 1)
	sent := make([]atomic.Int64, pieces) // when, in nanoseconds since began
	began := time.Now()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range pieces {
			sent[i].Store(int64(time.Since(began)))
			fmt.Fprintf(w, "data: {\"id\":\"1\",\"choices\":[{\"delta\":{\"content\":\"piece-%d.\\n\"}}]}\n\n", i)
			w.(http.Flusher).Flush()
			select {
			case <-shown:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = io.WriteString(w, `data: {"id":"1","choices":[{"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
	}))
	defer server.Close()
	home := b.TempDir()
	cmd := exec.CommandContext(b.Context(), bin, "--quiet", "run", "--model", "openai:any", "go")
	cmd.Dir = home
	cmd.Env = append(os.Environ(), "AGENTRUN_HOME="+filepath.Join(home, "data"), "XDG_STATE_HOME="+home, "OPENAI_BASE_URL="+server.URL+"/v1", "OPENAI_API_KEY=", "TERM=xterm-256color")
	out, err := start(cmd)
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	var text []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := out.Read(buf)
		at := time.Since(began)
		text = append(text, buf[:n]...)
		if len(took) < pieces && bytes.Contains(text, fmt.Appendf(nil, "piece-%d.", len(took))) {
			took = append(took, at-time.Duration(sent[len(took)].Load()))
			shown <- struct{}{}
		}
		if err != nil { // a terminal whose program is gone gives EIO
			break
		}
	}
	if err := cmd.Wait(); err != nil || len(took) != pieces {
		b.Fatalf("%v: %d pieces were shown\n%s", err, len(took), text)
	}
	return took
}
