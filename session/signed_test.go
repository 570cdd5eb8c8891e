package session_test

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
)

// TestSignedReasoningIsNeverChanged is about what a provider refuses for ever when one
// byte of it is missing: signatures, also where they and what they sign are longer than
// anything else that stays in a line.
func TestSignedReasoningIsNeverChanged(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	noise := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return base64.StdEncoding.EncodeToString(b)
	}
	long := strings.Repeat("a long text that is kept elsewhere, é\\u0007\\n", 20_000)
	blocks := []string{
		`{"type":"thinking","thinking":"` + strings.Repeat("thought ", 80_000) + `","thinkingSignature":"` + noise(600_000) + `"}`,
		`{"type":"thinking","thinking":"","thinkingSignature":"` + noise(3000) + `"}`,
		`{"type":"redactedThinking","data":"` + noise(500_000) + `"}`,
		`{"type":"text","text":"` + strings.Repeat("signed text ", 60_000) + `","textSignature":"` + noise(400_000) + `"}`,
		`{"type":"toolCall","id":"x","name":"bash","arguments":{"partialJson":"1","command":"` + strings.Repeat("echo ", 120_000) + `"},"thoughtSignature":"` + noise(400_000) + `"}`,
	}
	plain := `{"type":"text","text":"` + long + `"}`
	said := `{"role":"assistant","content":[` + strings.Join(append(blocks[:3:3], plain, blocks[3], blocks[4]), ",") +
		`],"api":"a","provider":"p","model":"m","stopReason":"toolUse","timestamp":1}`

	m := newManager(t, session.Options{Durability: session.Flush})
	s := newSession(t, m)
	appendOK(t, s, user("one"))
	at := appendOK(t, s, message(said))
	appendOK(t, s, message(`{"role":"toolResult","toolCallId":"x","toolName":"bash","content":[{"type":"text","text":"done"}],"isError":false,"timestamp":2}`))
	path := s.Path()

	whole := func(what string, s *session.Session) {
		t.Helper()
		line := must(s.Context(t.Context())).Messages[1].Entry().Raw()
		for i, block := range blocks {
			if !bytes.Contains(line, []byte(block)) {
				t.Fatalf("%s: block %d is not in its line as it was", what, i)
			}
		}
		if bytes.Contains(line, []byte(plain)) {
			t.Fatalf("%s: the long text is in the line", what)
		}
		if got := must(s.Entry(t.Context(), at)).Raw(); !bytes.Contains(got, []byte(said)) {
			t.Fatalf("%s: the entry is not what was appended", what)
		}
		for _, restore := range []bool{false, true} {
			resumed := must(s.Resume(t.Context(), session.ResumeOptions{Restore: restore}))
			if len(resumed.Repairs) > 0 {
				t.Fatalf("%s: repairs %+v", what, resumed.Repairs)
			}
			got := must(resumed.Context.Messages[1].JSON())
			for i, block := range blocks {
				if !bytes.Contains(got, []byte(block)) {
					t.Fatalf("%s: block %d is not in the context as it was, restored %t", what, i, restore)
				}
			}
			if restore && string(got) != said {
				t.Fatalf("%s: the message is not what was appended", what)
			}
		}
		noDamage(t, s)
	}
	whole("appended", s)
	s.Close()
	whole("read again", reopen(t, m, path))
	fork, _ := forkOf(t, m, path, session.ForkOptions{})
	whole("forked", fork)
	fork, forked := forkOf(t, m, path, session.ForkOptions{PathOnly: true})
	whole("forked by its path", fork)
	fork.Close()

	if err := m.Compress(t.Context(), forked.Path); err != nil {
		t.Fatal(err)
	}
	cold := reopen(t, m, forked.Path)
	if _, err := os.Stat(forked.Path + ".zst"); err != nil {
		t.Fatal(err)
	}
	whole("compressed", cold)
	appendOK(t, cold, user("go on"))
	whole("written to again", cold)
	cold.Close()

	to := filepath.Join(t.TempDir(), strings.Repeat("a long name ", 15))
	if err := os.Mkdir(to, 0o700); err != nil {
		t.Fatal(err)
	}
	moved := must(m.Move(t.Context(), path, to, session.MoveOptions{}))
	whole("moved", reopen(t, m, moved.Path))
}

// TestRepairsLeaveSignedReasoningAsItWas is about entries that repairs write once more.
func TestRepairsLeaveSignedReasoningAsItWas(t *testing.T) {
	signature := strings.Repeat("c2lnbmVk", 90_000)
	block := `{"type":"thinking","thinking":"` + strings.Repeat("hm ", 200_000) + `","thinkingSignature":"` + signature + `"}`
	m := newManager(t, session.Options{Durability: session.Flush})
	path := writeLog(t, m, "s.jsonl", foreignHeader, logLine("a", "", asks("hi")), logLine("b", "a", asks("")),
		logLine("c", "b", strings.Replace(says("yes", "x"), `"content":[`, `"content":[`+block+",", 1)), logLine("d", "c", asks("and?")))
	s := reopen(t, m, path)
	for range 2 {
		r := must(s.WriteRepairs(t.Context(), session.ResumeOptions{Restore: true}))
		n := 0
		for _, m := range r.Context.Messages {
			n += bytes.Count(must(m.JSON()), []byte(block))
		}
		if n != 1 {
			t.Fatalf("the block is in the context %d times", n)
		}
		accepted(t, r.Context)
		s.Close()
		s = reopen(t, m, path)
	}
	if r := must(s.Resume(t.Context(), session.ResumeOptions{})); len(r.Repairs) > 0 {
		t.Errorf("repairs %+v", r.Repairs)
	}
}
