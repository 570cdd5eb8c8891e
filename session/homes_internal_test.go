package session

import (
	"path/filepath"
	"testing"
)

func FuzzParseHomes(f *testing.F) {
	f.Add([]byte("{\"home\":\"/a\"}\n{\"home\":\"/b\",\"since\":\"2026-01-01T00:00:00Z\"}\n"))
	f.Add([]byte(`{"home":"relative"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		lines, err := parseHomes(data)
		for _, l := range lines {
			if err == nil && !filepath.IsAbs(l.Home) {
				t.Errorf("%q became a home", l.Home)
			}
		}
	})
}
