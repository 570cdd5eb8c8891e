package gitleaks

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/redact"
)

func TestEveryRuleCompilesAndHasAKeyword(t *testing.T) {
	r := all()
	if len(r.Rules) < 200 {
		t.Fatalf("there are %d rules", len(r.Rules))
	}
	for _, one := range r.Rules {
		if one.compiled() == nil || len(one.Keywords) == 0 || one.ID == "" {
			t.Errorf("%+v", one)
		}
		for _, k := range one.Keywords {
			if k != strings.ToLower(k) {
				t.Errorf("%s: keyword %q", one.ID, k)
			}
		}
		for _, a := range one.Allow {
			a.compiled()
		}
	}
	r.Allow.compiled()
}

// tokens are in parts, so that nobody finds them here.
var (
	slack  = "xoxb" + "-123456789012-123456789012-" + "abcdEFGHijklMNOPqrstUVWX"
	stripe = "sk_" + "live_" + "4eC39HqLyjWDarjtT1zdp7dc"
)

func TestSecretsAreFoundWhereTheyStand(t *testing.T) {
	text := []byte("a " + slack + "\nstripe: " + stripe + " b\nnothing here\n")
	found := Find(text)
	if len(found) != 2 || found[0].Rule != "slack-bot-token" || string(text[found[0].From:found[0].To]) != slack || string(text[found[1].From:found[1].To]) != stripe {
		t.Errorf("found %v", found)
	}
	if found := Find([]byte("a task, a token, an api key, and a password")); len(found) > 0 {
		t.Errorf("found %v", found)
	}
}

func TestAWriterReplacesAndKeepsJSONWhole(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	in := `{"a":"x ` + slack + `\ny","b":"stripe ` + stripe + `"}` + "\n" + `{"again":"` + slack + `"}`
	for i := range in {
		_, _ = w.Write([]byte{in[i]})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Contains(got, stripe) || strings.Contains(got, slack) || strings.Count(got, "[redacted:slack-bot-token:1]") != 2 || w.Replaced() != 3 {
		t.Errorf("%d replaced: %s", w.Replaced(), got)
	}
	for line := range strings.Lines(got) {
		if !json.Valid([]byte(strings.TrimSpace(line))) {
			t.Errorf("no JSON: %s", line)
		}
	}
}

func TestALongTextWithoutLinesPasses(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	in := strings.Repeat("0123456789 ", 100_000)
	_, _ = w.Write([]byte(in))
	if _ = w.Close(); out.String() != in {
		t.Errorf("%d bytes became %d", len(in), out.Len())
	}
}

// TestFalsePositives counts what both sets of rules find in recorded transcripts and logs, and logs it: the figures of BENCHMARKS.md.
func TestFalsePositives(t *testing.T) {
	root := os.Getenv("AGENTRUN_TEST_DATA")
	if root == "" || testing.Short() {
		t.Skip("no recorded sessions to count in: set AGENTRUN_TEST_DATA")
	}
	var size int64
	ours, theirs := map[string]int{}, map[string]int{}
	seen := map[string]bool{}
	look := func(text []byte) {
		r := redact.New(redact.Options{Number: func(kind string, secret []byte) int64 {
			ours[kind]++
			if !seen[string(secret)] {
				seen[string(secret)] = true
				t.Logf("redact: %s: %.60q", kind, secret)
			}
			return 1
		}})
		r.Text(text)
		for _, f := range Find(text) {
			theirs[f.Rule]++
			if secret := string(text[f.From:f.To]); !seen[f.Rule+secret] {
				seen[f.Rule+secret] = true
				t.Logf("gitleaks: %s: %.60q", f.Rule, secret)
			}
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		size += int64(len(b))
		if !strings.HasSuffix(path, ".jsonl") {
			look(b)
			return nil
		}
		for line := range bytes.Lines(b) {
			texts(bytes.TrimSpace(line), look)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(ours) > 0 {
		t.Errorf("package redact replaces %v in texts that hold no secret", ours)
	}
	t.Logf("%d bytes; redact %v; gitleaks %v", size, ours, theirs)
}

// texts calls look with every string of a line of JSON.
func texts(line []byte, look func([]byte)) {
	for i := 0; i < len(line); i++ {
		if line[i] != '"' {
			continue
		}
		end := ecmajson.ValueEnd(line, i)
		if text, err := ecmajson.Unquote(line[i:end]); err == nil && len(text) >= redact.MinSecret {
			look(text)
		}
		i = max(i, end-1)
	}
}
