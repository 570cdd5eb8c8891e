package checkpoint_test

import (
	"os"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/checkpoint"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// What is kept saves work and changes nothing of what is recorded, whether the file has it or not.
func TestAFileIsRecordedAsItIsWhateverIsKept(t *testing.T) {
	long := strings.Repeat("line\n", 200_000)
	for _, c := range []struct{ name, kept, file string }{
		{"the same", long, long},
		{"another end", long + "x", long + "y"},
		{"less", long, long[:len(long)-1]},
		{"more", long, long + "z"},
		{"nothing", long, ""},
		{"nothing kept", "", long},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newProject(t, checkpoint.Options{}, session.Options{})
			ctx := t.Context()
			begin, err := p.s.Append(ctx, entry.Custom{CustomType: "x"})
			check(t, err)
			p.write("f", c.file)
			forget, also := p.r.Keep(ctx, []byte(c.kept)), p.r.Keep(ctx, []byte(long[:5]))
			check(t, p.r.Before(ctx, p.path("f")))
			p.write("f", long+"new")
			forget()
			forget = p.r.Keep(ctx, []byte(long+"new"))
			check(t, p.r.After(ctx, p.path("f")))
			forget()
			also()
			after, err := p.s.Leaf(ctx)
			check(t, err)
			for at, want := range map[string]string{begin: c.file, after: long + "new"} {
				p.rewind(at)
				if data, err := os.ReadFile(p.path("f")); err != nil || string(data) != want {
					t.Errorf("%d bytes, want %d, %v", len(data), len(want), err)
				}
			}
		})
	}
}
