package usage

import (
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
)

func TestALineCountsWithWhatWasFoldedOutOfIt(t *testing.T) {
	mark := "\x1a" + blobref.Of([]byte("x")).String() + ",123456\x1a"
	tool := `{"message":{"role":"toolResult","toolName":"read","content":"`
	for name, c := range map[string]struct {
		text string
		want int64
	}{
		"plain":                  {tool + "x\"\n", int64(len(tool)) + 3},
		"folded":                 {tool + mark + "\"\n", int64(len(tool)) + 123456 + 2},
		"folded twice":           {tool + mark + mark + "\"\n", int64(len(tool)) + 2*123456 + 2},
		"without its end":        {tool + mark[:50], int64(len(tool)) + 50},
		"a byte that marks none": {tool + "\x1a" + strings.Repeat("x", 300) + "\"\n", int64(len(tool)) + 303},
	} {
		t.Run(name, func(t *testing.T) {
			for _, step := range []int{1, 7, 1000} {
				tools, line := map[string]int64{}, openLine{}
				for b := []byte(c.text); len(b) > 0; b = b[min(step, len(b)):] {
					line.take(b[:min(step, len(b))], tools)
				}
				line.end(tools)
				if got := tools["read"]; got != c.want {
					t.Errorf("%d bytes at a time: %d, want %d", step, got, c.want)
				}
			}
		})
	}
}
