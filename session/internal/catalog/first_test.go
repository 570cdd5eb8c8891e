package catalog

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFirstPromptOfTheBeginningOfALog(t *testing.T) {
	const header = `{"type":"session","version":3,"id":"a","cwd":"/w"}` + "\n"
	start := func(command string) string {
		return `{"type":"custom","id":"1","parentId":null,"customType":"agentrun.run.start","data":{"run":"r","command":"` + command + `"}}` + "\n"
	}
	prompt := func(content string) string {
		return `{"type":"message","id":"2","parentId":"1","message":{"role":"user","content":` + content + `}}` + "\n"
	}
	for _, tt := range []struct{ name, log, want string }{
		{"nothing", "", ""},
		{"a header", header, ""},
		{"a prompt", header + prompt(`"fix  the\nbuild"`), "fix the build"},
		{"a prompt in blocks, behind an image", header + prompt(`[{"type":"image","data":"aaaa"},{"type":"text","text":"what is it?"}]`), "what is it?"},
		{"a command", header + start("seq 10") + prompt(`"later"`), "$ seq 10"},
		{"a command of another program", header + `{"type":"message","id":"1","message":{"role":"bashExecution","command":"make"}}` + "\n", "$ make"},
		{"settings before it", header + `{"type":"model_change","id":"1","model":"user"}` + "\n" + prompt(`"go"`), "go"},
		{"an answer is none", header + `{"type":"message","id":"1","message":{"role":"assistant","content":"yes"}}` + "\n", ""},
		{"a prompt that is kept as a blob", header + prompt(`"blob:sha256:00"`), ""},
		{"a long one", header + prompt(`"`+strings.Repeat("é", 300)+`"`), strings.Repeat("é", 100) + "…"},
		{"a line that was not read to its end", header + strings.TrimSuffix(prompt(`"begun and not`), "}}\n"), "begun and not"},
		{"one that ends in an escape", header + strings.TrimSuffix(prompt(`[{"type":"text","text":"begun \\ \u00`), "}}\n"), `begun \`},
		{"one that ends in a character", header + strings.TrimSuffix(prompt(`"begun `+"\xe7\x8b"), "}}\n"), "begun"},
		{"other kinds", header + prompt("7") + start("") + prompt(`{"text":"x"}`), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := firstOf([]byte(tt.log)); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzFirstPrompt(f *testing.F) {
	f.Add([]byte(`{"type":"message","message":{"role":"user","content":[{"type":"text","text":"a\u00`))
	f.Add([]byte(`{"type":"custom","customType":"agentrun.run.start","data":{"command":"a\tb"}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := firstOf(in)
		if !utf8.ValidString(got) || len(got) > maxFirst+len("…") || strings.ContainsAny(got, "\n\t") {
			t.Errorf("%q", got)
		}
	})
}
