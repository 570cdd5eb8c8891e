package bash

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestQuoteLeavesPlainArgumentsAlone(t *testing.T) {
	for want, argv := range map[string][]string{
		"seq 1 300000":              {"seq", "1", "300000"},
		"env 'X=1' true":            {"env", "X=1", "true"}, // '=' would make an assignment of a first word
		`echo '' '$HOME' 'it'\''s'`: {"echo", "", "$HOME", "it's"},
		"'~' 'X=1 2' '#'":           {"~", "X=1 2", "#"},
	} {
		if got := Quote(argv); got != want {
			t.Errorf("Quote(%q) = %s, want %s", argv, got, want)
		}
	}
}

func TestAShellReadsWhatWasQuoted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		argv := rapid.SliceOfN(rapid.StringOf(rapid.RuneFrom([]rune("ab '\"\\$`*?~#=!&;|<>(){}[]\n\té\u2028-"))), 1, 5).Draw(t, "argv")
		out, err := exec.Command("sh", "-c", `printf '%s\0' `+Quote(argv)).Output()
		if err != nil {
			t.Fatalf("sh refuses %s: %v", Quote(argv), err)
		}
		if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, argv) {
			t.Fatalf("%q came back as %q", argv, got)
		}
	})
}
