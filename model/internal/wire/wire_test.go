package wire_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/internal/wire"
)

func TestEventsAreReadHoweverTheyArrive(t *testing.T) {
	text := "\xef\xbb\xbfevent: a\r\ndata: one\r\ndata:two\r\n\r\n: comment\nid: 7\ndata\n\n\ndata: ä€\nretry: 3\n\nevent: none\n\ndata: cut"
	want := `a|one` + "\n" + `two;|;|ä€;`
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)), "half": iotest.HalfReader(strings.NewReader(text)),
	} {
		got := ""
		events := wire.NewEvents(r)
		for {
			event, data, err := events.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got += event + "|" + string(data) + ";"
		}
		if got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func TestAnEventWithoutEndIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some hundred megabytes")
	}
	if _, _, err := wire.NewEvents(io.MultiReader(strings.NewReader("data: "), endless{})).Next(); !errors.Is(err, wire.ErrTooLong) {
		t.Error(err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: x\n\n", 3)
	f.Add("event: a\r\ndata\r\n\r\n:\ndata: b\ndata: c\n\n", 1)
	f.Fuzz(func(t *testing.T, text string, size int) {
		read := func(r io.Reader) (all string) {
			events := wire.NewEvents(r)
			for {
				event, data, err := events.Next()
				if err != nil {
					return all
				}
				all += fmt.Sprintf("%q %q\n", event, data)
			}
		}
		if whole, pieces := read(strings.NewReader(text)), read(iotest.OneByteReader(strings.NewReader(text))); whole != pieces {
			t.Errorf("in pieces it is %s, and whole %s", pieces, whole)
		}
	})
}

func TestStatusesHaveKinds(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, body string
		kind       model.Kind
		says       string
	}{
		{400, "", `{"error":{"message":"messages.1: all must be well"}}`, model.KindInvalid, "does not take the request (HTTP 400: messages.1: all must be well)"},
		{400, "", "This model's maximum context length is 8192 tokens.", model.KindOverflow, "compact"},
		{400, "context_length_exceeded", "", model.KindOverflow, "compact"},
		{413, "", "", model.KindOverflow, "HTTP 413"},
		{401, "", "", model.KindAuth, "see that it is right"},
		{403, "", "", model.KindAuth, ""},
		{429, "", "", model.KindRateLimit, "wait"},
		{429, "insufficient_quota", "", model.KindAuth, "no credit"},
		{404, "", `{"error":"model 'x' not found"}`, model.KindInvalid, "model 'x' not found"},
		{301, "", "", model.KindInvalid, "elsewhere"},
		{500, "", "<html>\x1b[31m\n" + strings.Repeat("x", 9000), model.KindServer, "…"},
		{503, "", "", model.KindOverloaded, ""},
		{529, "", "", model.KindOverloaded, ""},
		{418, "", "\xff\xfe", model.KindInvalid, ""},
	} {
		e := wire.Explain(c.status, c.code, c.body)
		if e.Kind != c.kind || !strings.Contains(e.Message, c.says) || len(e.Message) > 800 || strings.ContainsAny(e.Message, "\n\x1b") {
			t.Errorf("%d %s %.40q: %s, %s", c.status, c.code, c.body, e.Kind, e.Message)
		}
	}
}

func TestRetryAfterIsReadInEveryForm(t *testing.T) {
	now := time.Date(2026, 11, 21, 20, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "2", 2 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "Sat, 21 Nov 2026 20:01:00 GMT", time.Minute},
		{"Retry-After", "Sat, 21 Nov 2026 19:00:00 GMT", 0},
		{"Retry-After", "999999", 24 * time.Hour},
		{"Retry-After", "-1", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "1e300", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
	} {
		if got := wire.RetryAfter(http.Header{http.CanonicalHeaderKey(c.name): {c.value}}, now); got != c.want {
			t.Errorf("%s: %s is %v", c.name, c.value, got)
		}
	}
}

// post asks a server once.
func post(t *testing.T, c wire.Client, at string) error {
	t.Helper()
	c.HTTP = wire.NewHTTP()
	defer c.HTTP.CloseIdleConnections()
	_, err := c.Post(t.Context(), at, http.Header{"X-Api-Key": {c.Key}}, []byte("{}"), func(string, []byte) (bool, error) { return true, nil })
	return err
}

func TestAProviderThatSaysNothingIsGivenUp(t *testing.T) {
	for name, first := range map[string]string{"at once": "", "behind an event": "data: x\n\n"} {
		release := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if first != "" {
				_, _ = io.WriteString(w, first)
				_ = http.NewResponseController(w).Flush()
			}
			<-release
		}))
		err := post(t, wire.Client{Idle: 30 * time.Millisecond}, s.URL)
		if err == nil || !strings.Contains(err.Error(), "has said nothing for 30ms") || errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		close(release)
		s.Close()
	}
}

func TestAKeyIsNotCarriedElsewhereNorTold(t *testing.T) {
	const key = "sk-planted-0123456789"
	asked := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+"/?"+r.Header.Get("X-Api-Key"), http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	err := post(t, wire.Client{Key: key}, s.URL)
	if model.KindOf(err) != model.KindInvalid || asked != 0 || strings.Contains(err.Error(), key) {
		t.Errorf("%v; the other one was asked %d times", err, asked)
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if err := post(t, wire.Client{Key: key}, gone.URL+"/"+key); err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "connection") {
		t.Error(err)
	}
	if err := post(t, wire.Client{Key: key}, "http://[::1"); err == nil || strings.Contains(err.Error(), key) {
		t.Error(err)
	}
}

func TestAnErrorWithTheStatusOfASuccessIsOne(t *testing.T) {
	for kind, body := range map[string]string{"application/json": `{"error":{"message":"no such model"}}`, "text/html; charset=utf-8": "<title>Log in</title>"} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}))
		if err := post(t, wire.Client{}, s.URL); model.KindOf(err) != model.KindServer || !strings.Contains(err.Error(), "something else than events") {
			t.Errorf("%s: %v", kind, err)
		}
		s.Close()
	}
}

func TestIDsOfCallsAreThoseThatAllTake(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"toolu_01-A", "call_1|fc_1", "call_1|fc_2", "call_1", "a b", "a_b", "ä", "", strings.Repeat("x", 65), strings.Repeat("x", 66), strings.Repeat("x", 64)} {
		got := wire.CallID(id)
		if len(got) > 64 || got == "" && id != "" || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			t.Errorf("%q became %q", id, got)
		}
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q both became %q", id, other, got)
		}
		seen[got] = id
	}
	if wire.CallID("toolu_01-A") != "toolu_01-A" {
		t.Error("a good id was changed")
	}
}

func BenchmarkEvents(b *testing.B) {
	stream := bytes.Repeat([]byte("event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"word\"}}\n\n"), 10_000)
	b.SetBytes(int64(len(stream)))
	for b.Loop() {
		events := wire.NewEvents(bytes.NewReader(stream))
		for {
			if _, _, err := events.Next(); err != nil {
				break
			}
		}
	}
}
