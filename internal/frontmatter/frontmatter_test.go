package frontmatter_test

import (
	"testing"

	"github.com/agentrun/agentrun/internal/frontmatter"
)

func TestSplit(t *testing.T) {
	for text, want := range map[string]struct {
		head, body string
		ok         bool
	}{
		"---\na: 1\n---\nbody\n":           {"a: 1", "body\n", true},
		"\ufeff---\r\na: 1\r\n---\r\nbody": {"a: 1", "body", true},
		"---\n---\nbody":                   {"", "body", true},
		"---\na: 1\n---":                   {"a: 1", "", true},
		"---\na: 1\n":                      {"", "---\na: 1\n", false},
		"body":                             {"", "body", false},
		"":                                 {"", "", false},
	} {
		head, body, ok := frontmatter.Split([]byte(text))
		if string(head) != want.head || string(body) != want.body || ok != want.ok {
			t.Errorf("%q is %q, %q, %v", text, head, body, ok)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("---\nname: a\ntools: [a, b]\n---\n"))
	f.Add([]byte("---\na: &a [*a]\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		head, _, ok := frontmatter.Split(data)
		if ok && len(head) < 4096 {
			var into struct {
				Name string `yaml:"name"`
			}
			_ = frontmatter.Decode(head, &into)
		}
	})
}
