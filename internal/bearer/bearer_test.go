package bearer_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/internal/bearer"
)

func TestATokenIsOneWordInAFileOfItsOwner(t *testing.T) {
	longest := strings.Repeat("s", bearer.MaxLen)
	for _, tt := range []struct {
		name, text string
		mode       os.FileMode
		want       string // "" where it is refused
		why        string
	}{
		{"a word", "secret", 0o600, "secret", ""},
		{"a word that cannot be written", "secret", 0o400, "secret", ""},
		{"a line", "secret\n", 0o600, "secret", ""},
		{"a line from elsewhere", "secret\r\n", 0o600, "secret", ""},
		{"the longest", longest + "\r\n", 0o600, longest, ""},
		{"one byte more", longest + "s\n", 0o600, "", "limit"},
		{"a long file", strings.Repeat("secret", 1<<20), 0o600, "", "larger"},
		{"nothing", "", 0o600, "", "empty"},
		{"a line end alone", "\n", 0o600, "", "empty"},
		{"two words", "secret secret", 0o600, "", "byte 6"},
		{"two lines", "secret\nsecret", 0o600, "", "byte 6"},
		{"a letter that is not ASCII", "secrät", 0o600, "", "byte 4"},
		{"a file that others may read", "secret", 0o604, "", "chmod 600"},
		{"a file that the group may write", "secret", 0o620, "", "chmod 600"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(name, tt.mode); err != nil {
				t.Fatal(err)
			}
			got, err := bearer.FromFile(name)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Fatalf("FromFile = %.20q, %v", got, err)
			}
			if err != nil && (strings.Contains(err.Error(), "sec") || !strings.Contains(err.Error(), tt.why)) {
				t.Errorf("the error is %v, want one with %q and without the token", err, tt.why)
			}
		})
	}
	if _, err := bearer.FromFile(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that is not there has a token")
	}
}

func TestATokenIsOneWordInAVariable(t *testing.T) {
	lookup := func(name string) (string, bool) {
		text, ok := map[string]string{"A": "secret", "B": "sec\x01ret", "C": ""}[name]
		return text, ok
	}
	for name, want := range map[string]string{"A": "secret", "B": "", "C": "", "D": ""} {
		got, err := bearer.FromVariable(lookup, name)
		if got != want || (err != nil) != (name == "B") || err != nil && strings.Contains(err.Error(), "sec") {
			t.Errorf("%s has %q, %v", name, got, err)
		}
	}
}

func TestARequestBringsTheToken(t *testing.T) {
	for header, want := range map[string]bool{
		"Bearer secret":  true,
		"bearer secret":  true,
		"Bearer secret ": false,
		"Bearer secre":   false,
		"Bearer":         false,
		"Basic secret":   false,
		"secret":         false,
		"":               false,
	} {
		if got := bearer.In(header, "secret"); got != want {
			t.Errorf("%q brings the token: %v", header, got)
		}
	}
}
