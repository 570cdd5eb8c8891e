package redact

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// random returns n letters of a class that look like a token.
func random(r *rand.Rand, c *class, n int) string {
	var all []byte
	for b := range c {
		if c[b] {
			all = append(all, byte(b))
		}
	}
	out := make([]byte, n)
	for i := range out {
		out[i] = all[r.IntN(len(all))]
	}
	return string(out)
}

// example makes a token of a shape, none of which stands in this file.
func (s *shape) example(r *rand.Rand) string {
	for {
		var b strings.Builder
		for _, p := range s.parts {
			if p.class == nil {
				b.WriteString(p.text)
			} else {
				b.WriteString(random(r, p.class, p.least))
			}
		}
		if genuine([]byte(b.String())) {
			return s.prefix + b.String()
		}
	}
}

func pem(r *rand.Rand, kind string, lines int, nl string) string {
	var b strings.Builder
	b.WriteString("-----BEGIN " + kind + "-----" + nl)
	for range lines {
		b.WriteString(random(r, alnum, 64) + nl)
	}
	b.WriteString("-----END " + kind + "-----")
	return b.String()
}

func redacted(text string, values ...string) string {
	out, _ := New(Options{Values: values}).Text([]byte(text))
	return string(out)
}

func TestEveryRuleFindsATokenOfItsKindAndLeavesWhatStandsAround(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range shapes() {
		s := &shapes()[i]
		token := s.example(r)
		for _, around := range []string{"%s", "key=%s\n", "\"%s\"", "(%s)", "a %s b", "Bearer %s,", "x\\n%s\\n"} {
			in := fmt.Sprintf(around, token)
			want := fmt.Sprintf(around, "[redacted:"+s.kind+":1]")
			if got := redacted(in); got != want {
				t.Errorf("%s: %q became %q, want %q", s.kind, in, got, want)
			}
		}
		if word[s.prefix[0]] {
			for _, in := range []string{"x" + token, "task_" + token} {
				if got := redacted(in); got != in {
					t.Errorf("%s: part of a longer word: %q became %q", s.kind, in, got)
				}
			}
		}
	}
}

func TestTextsThatOnlyLookLikeSecretsStay(t *testing.T) {
	for _, in := range []string{
		"", "s", "sk", "sk-", "sk-ant-", "ghp_", "a task-force with sk-learn and ghp_short",
		"ghp_" + strings.Repeat("x", 36), "AKIAIOSFODNN7" + "EXAMPLE", "AKIA" + strings.Repeat("A", 16),
		"http://localhost:8080/a@b", "https://example.com:443", "ssh://git@github.com/a/b", "postgres://user:pw@host/db",
		"postgres://user:password@host", "postgres://user:$DB_PASSWORD@host", "redis://:${REDIS}@host", "mysql://u:%s@h", "http://user:********@host",
		"://user:longpassword@host", "mail to a:bcdefghij@host", "http://a:b c@d", "https://u:<password>@host",
		"-----BEGIN CERTIFICATE-----\n" + strings.Repeat("A", 64) + "\n-----END CERTIFICATE-----",
		"grep -e '-----BEGIN PRIVATE KEY-----' file", "-----BEGIN PRIVATE KEY-----\nshort\n-----END PRIVATE KEY-----",
		"-----BEGIN PRIVATE KEY-----", "eyJhbGciOi", "eyJhbGciOiJIUzI1NiJ9.notjson.x", "[redacted:github:1]",
	} {
		if got := redacted(in); got != in {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func TestOfAURLOnlyThePasswordIsReplaced(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	gh := shapeOf("github").example(r)
	for in, want := range map[string]string{
		"postgres://app:hunter2hunter2@db:5432/x":       "postgres://app:[redacted:url-password:1]@db:5432/x",
		"redis://:hunter2hunter2@[::1]:6379":            "redis://:[redacted:url-password:1]@[::1]:6379",
		"amqps://a:p%40ssw0rd9!@h/ amqp://a:b@h":        "amqps://a:[redacted:url-password:1]@h/ amqp://a:b@h",
		"https://" + gh + ":x-oauth-basic-1@github.com": "https://[redacted:github:1]:[redacted:url-password:2]@github.com",
		"https://" + gh + "@github.com":                 "https://[redacted:github:1]@github.com",
		"https://x-access-token:" + gh + "@github.com":  "https://x-access-token:[redacted:url-password:1]@github.com",
	} {
		if got := redacted(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func shapeOf(kind string) *shape {
	for i := range shapes() {
		if shapes()[i].kind == kind {
			return &shapes()[i]
		}
	}
	return nil
}

func TestAPrivateKeyIsReplacedWholeAndOneThatDoesNotEndAsFarAsItGoes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	rsa, pgp := pem(r, "RSA PRIVATE KEY", 25, "\n"), pem(r, "PGP PRIVATE KEY BLOCK", 40, "\n")
	escaped := pem(r, "PRIVATE KEY", 25, `\n`)
	header := strings.Replace(rsa, "-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1)
	line := strings.ReplaceAll(rsa, "\n", "")
	open, _, _ := strings.Cut(rsa, "\n-----END")
	mark := "[redacted:private-key:1]"
	for in, want := range map[string]string{
		"a\n" + rsa + "\nb":                     "a\n" + mark + "\nb",
		pgp:                                     mark,
		`{"key":"` + escaped + `\n","a":1}`:     `{"key":"` + mark + `\n","a":1}`,
		header:                                  mark,
		line + "\n":                             mark + "\n",
		strings.ReplaceAll(rsa, "\n", "\r\n"):   mark,
		strings.ReplaceAll(rsa, "\n", "\n    "): mark,
		open + "\nthere is more to say, isn't it": mark + "\nthere is more to say, isn't it",
		open + "\n":          mark + "\n",
		open:                 mark,
		`'` + open + `' + x`: `'` + mark + `' + x`,
	} {
		if got := redacted(in); got != want {
			t.Errorf("%q became\n%q, want\n%q", in, got, want)
		}
	}
}

func TestNothingOfASecretBeyondTheBoundIsWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	key := "-----BEGIN PRIVATE KEY-----\n" + strings.Repeat(random(r, alnum, 64)+"\n", 3000)
	oneLine := "-----BEGIN PRIVATE KEY-----" + random(r, alnum, 200_000)
	token := "ghp_" + random(r, alnum, 100_000)
	for in, want := range map[string]string{
		"a " + key + "-----END PRIVATE KEY----- b": "a [redacted:private-key:1]-----END PRIVATE KEY----- b",
		oneLine + "; b": "[redacted:private-key:1]; b",
		token + "; b":   "[redacted:github:1]; b",
		token:           "[redacted:github:1]",
	} {
		if got := redacted(in); got != want {
			t.Errorf("got %.300q, want %q", got, want)
		}
		for _, size := range []int{1, 7, 1000, 4096, 65_536} {
			if got := pieces(in, func() int { return size }); got != want {
				t.Errorf("in pieces of %d: got %.300q, want %q", size, got, want)
			}
		}
	}
}

func TestValuesAreReplacedWhereverTheyStandTheLongestFirst(t *testing.T) {
	got := redacted("xhunter22y hunter22more short hunter2 hunter2", "hunter22", "hunter22more", "short", "")
	want := "x[redacted:variable:1]y [redacted:variable:2] short hunter2 hunter2"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheSameSecretHasTheSameNumber(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	a, b := shapeOf("github").example(r), shapeOf("aws").example(r)
	in := a + " " + b + " " + a + " postgres://u:" + a + "@h"
	want := "[redacted:github:1] [redacted:aws:2] [redacted:github:1] postgres://u:[redacted:url-password:1]@h"
	if got := redacted(in); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestATextWithoutSecretsIsReturnedAsItIs(t *testing.T) {
	in := []byte(strings.Repeat("nothing to see https://example.com:80/ sk-learn ", 100))
	out, n := New(Options{}).Text(in)
	if n != 0 || &out[0] != &in[0] {
		t.Errorf("%d replaced, or a copy", n)
	}
}

// pieces sends a text through a Writer in pieces of the sizes that next gives.
func pieces(in string, next func() int, values ...string) string {
	var out bytes.Buffer
	w := New(Options{Values: values}).Writer(&out)
	for b := []byte(in); len(b) > 0; {
		n := max(1, min(next(), len(b)))
		piece := bytes.Clone(b[:n])
		_, _ = w.Write(piece)
		clear(piece) // whoever keeps it has nothing
		b = b[n:]
	}
	_ = w.Close()
	return out.String()
}

// soup draws texts full of secrets, beginnings of them, and what stands between.
func soup(t *rapid.T, values []string) string {
	r := rand.New(rand.NewPCG(uint64(rapid.Int().Draw(t, "seed")), 0))
	var b strings.Builder
	for range rapid.IntRange(0, 12).Draw(t, "parts") {
		var s string
		switch rapid.IntRange(0, 8).Draw(t, "what") {
		case 0, 1:
			s = shapes()[r.IntN(len(shapes()))].example(r)
		case 2:
			s = "https://" + random(r, alnum, r.IntN(20)) + ":" + random(r, urlsafe, r.IntN(20)) + "@" + random(r, lower, r.IntN(4))
		case 3:
			s = pem(r, []string{"RSA PRIVATE KEY", "CERTIFICATE", "PGP PRIVATE KEY BLOCK"}[r.IntN(3)], r.IntN(4), []string{"\n", "\r\n", `\n`, ""}[r.IntN(4)])
		case 4:
			s = values[r.IntN(len(values))]
		case 5:
			s = strings.Repeat(shapes()[r.IntN(len(shapes()))].prefix, 1+r.IntN(3))
		default:
			s = random(r, newClass(" -~\n"), r.IntN(20))
		}
		if r.IntN(3) == 0 && len(s) > 0 {
			s = s[:r.IntN(len(s))]
		}
		b.WriteString(s)
		if r.IntN(2) == 0 {
			b.WriteString([]string{" ", "\n", "://", "-", "@", `\n`}[r.IntN(6)])
		}
	}
	return b.String()
}

func TestHowAStreamIsCutChangesNothing(t *testing.T) {
	values := []string{"hunter2hunter2", "hunter2hunter2more", "s://k-ant-", "-----BEGIN", "a\nb\nc\nd\ne\n"}
	rapid.Check(t, func(t *rapid.T) {
		in := soup(t, values)
		want := redacted(in, values...)
		most := rapid.SampledFrom([]int{1, 2, 3, 10, 100, 1000}).Draw(t, "most")
		if got := pieces(in, func() int { return rapid.IntRange(1, most).Draw(t, "size") }, values...); got != want {
			t.Fatalf("%q\nin pieces became %q\nwhole %q", in, got, want)
		}
	})
}

func FuzzHowAStreamIsCutChangesNothing(f *testing.F) {
	r := rand.New(rand.NewPCG(11, 12))
	for i := range shapes() {
		f.Add([]byte("a "+shapes()[i].example(r)+"\n"), uint8(3))
	}
	f.Add([]byte(pem(r, "PRIVATE KEY", 3, `\n`)), uint8(1))
	f.Add([]byte("a://b:cdefghij@k hunter2hunter2"), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		want := redacted(string(in), "hunter2hunter2")
		if got := pieces(string(in), func() int { return int(size%16) + 1 }, "hunter2hunter2"); got != want {
			t.Errorf("%q\nin pieces became %q\nwhole %q", in, got, want)
		}
	})
}

func TestAWriterHoldsBackOnlyWhatMayBecomeASecret(t *testing.T) {
	var out bytes.Buffer
	w := New(Options{}).Writer(&out)
	_, _ = io.WriteString(w, "Continue? [y/n]: ")
	if got := out.String(); got != "Continue? [y/n]: " {
		t.Errorf("a prompt came as %q", got)
	}
	_, _ = io.WriteString(w, "ghp_")
	if got := out.String(); got != "Continue? [y/n]: " {
		t.Errorf("the beginning of a token came: %q", got)
	}
	_, _ = io.WriteString(w, " no")
	if got := out.String(); got != "Continue? [y/n]: ghp_ no" {
		t.Errorf("what was none did not come: %q", got)
	}
}

func BenchmarkStream(b *testing.B) {
	line := []byte("2026-11-21T19:20:42Z INFO server/http.go:42 GET https://example.com:8080/api/v1/items?id=42 200 13ms skipped=3 gopher\n")
	in := bytes.Repeat(line, 64<<10/len(line))
	values := []string{"hunter2hunter2", "another-value-of-a-variable"}
	b.SetBytes(int64(len(in)))
	s := New(Options{Values: values}).Stream()
	var dst []byte
	for b.Loop() {
		dst = s.Append(dst[:0], in)
	}
}
