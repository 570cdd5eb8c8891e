package catalog

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
)

func TestResolveHomeTakesTheFirstThatIsSet(t *testing.T) {
	for _, tt := range []struct{ name, flag, env, xdg, user, want string }{
		{"the flag", "/flag", "/env", "/xdg", "/u", "/flag"},
		{"the environment", "", "/env", "/xdg", "/u", "/env"},
		{"the data directory", "", "", "/xdg", "/u", "/xdg/agentrun"},
		{"the user's home", "", "", "", "/u", "/u/.local/share/agentrun"},
		{"a relative data directory is ignored", "", "", "xdg", "/u", "/u/.local/share/agentrun"},
		{"a path is cleaned", "/flag/../x/", "", "", "/u", "/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(HomeEnv, tt.env)
			t.Setenv("XDG_DATA_HOME", tt.xdg)
			t.Setenv("HOME", tt.user)
			if got, err := ResolveHome(tt.flag); err != nil || got != tt.want {
				t.Errorf("ResolveHome(%q) = %q, %v, want %q", tt.flag, got, err, tt.want)
			}
		})
	}
	t.Run("a file is refused with what to do", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{file, filepath.Join(file, "below")} {
			_, err := ResolveHome(flag)
			if err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("ResolveHome(%q): %v", flag, err)
			}
		}
	})
	t.Run("a relative flag becomes absolute", func(t *testing.T) {
		t.Chdir(t.TempDir())
		if got, err := ResolveHome("x"); err != nil || !filepath.IsAbs(got) {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestForeignHomes(t *testing.T) {
	for _, tt := range []struct {
		name string
		has  []string
		want bool
	}{
		{"a home that is not there", nil, false},
		{"our own home", []string{markName, "sessions/", "blobs/", "list.cache"}, false},
		{"a new agent directory has no mark", []string{"sessions/"}, true},
		{"a new agent directory with blobs only", []string{"blobs/"}, true},
		{"an agent directory", []string{"sessions/", "blobs/", "history.db", "terminal-sessions/"}, true},
		{"our home that another program was pointed at", []string{markName, "sessions/", "terminal-sessions/"}, true},
		{"a directory of something else", []string{"readme"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := filepath.Join(t.TempDir(), "home")
			for _, name := range tt.has {
				path := filepath.Join(home, name)
				if strings.HasSuffix(name, "/") {
					path = filepath.Join(path, "x")
				}
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, err := Foreign(nil, home); err != nil || got != tt.want {
				t.Errorf("Foreign = %v, %v, want %v", got, err, tt.want)
			}
			if err := MarkHome(nil, home); err != nil {
				t.Fatal(err)
			}
			if got, err := Foreign(nil, home); err != nil || got != tt.want {
				t.Errorf("after MarkHome, Foreign = %v, %v, want %v", got, err, tt.want)
			}
			if marked, err := exists(durable.OS, filepath.Join(home, markName)); err != nil || tt.want && len(tt.has) < 3 && marked {
				t.Errorf("a foreign home was marked: %v", err)
			}
			if err := os.MkdirAll(SessionsDir(home), 0o700); err != nil {
				t.Fatal(err)
			}
			if got, err := Foreign(nil, home); err != nil || got != tt.want {
				t.Errorf("with sessions, Foreign = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}
