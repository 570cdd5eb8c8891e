package checkpoint

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

func FuzzParse(f *testing.F) {
	const line = `{"type":"custom","id":"a","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","customType":"agentrun.checkpoint","data":`
	f.Add(`{"cause":"tool","files":[{"path":"/p/a","rel":"a","before":null,"after":{"ref":"blob:sha256:4355a46b19d348dc2f57c046f8ef63d4538ebb936000f3c9ee954a27460dd865","size":2,"mode":"0644","stamp":"1-2-3"}}]}`)
	f.Add(`{"cause":"rewind","made":[{"path":"/p/../x"}],"dirs":[{"path":"/p","rel":"."}],"skipped":[{"path":"p","rel":"../a","reason":"x"}],"files":[]}`)
	f.Add(`{"files":[{"path":"/p/.git/hooks/x","rel":".git/hooks/x"},{"path":"/","rel":"."},{"path":"/p/\u0000"},null,7]}`)
	f.Fuzz(func(t *testing.T, data string) {
		p := places{fs: durable.OS, root: "/p", home: "/home"}
		h := newHistory(p)
		for _, e := range session.LineEntries([]byte(line+data+"}"), 0, 1) {
			r, _, ok := parse(e)
			if !ok {
				continue
			}
			for _, file := range r.Files {
				path := h.resolve(file.Place)
				switch {
				case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
					t.Fatalf("%q passed", path)
				case file.Rel != "" && !within("/p", path):
					t.Fatalf("%q is out of /p", path)
				case strings.Contains(strings.ToLower(path)+"/", "/.git/") && p.forbidden(path) == "":
					t.Fatalf("%q may be written", path)
				}
				for _, s := range []*State{file.Before, file.After} {
					if s != nil && (s.Mode > 0o777 || s.Size < 0 || s.Ref.IsZero()) {
						t.Fatalf("state %+v passed", s)
					}
				}
			}
		}
	})
}
