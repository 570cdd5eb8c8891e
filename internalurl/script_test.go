package internalurl

import (
	"errors"
	"strings"
	"testing"
)

func TestURLsInScriptsBecomePaths(t *testing.T) {
	find := func(u URL) (string, error) {
		switch {
		case u.Scheme == Artifact && u.Artifact == 7:
			return "/a b/7.log", nil
		case u.Scheme == Artifact && u.Artifact < 9:
			return "/kept/" + strings.TrimPrefix(u.String(), "artifact://"), nil
		case u.Scheme == Agent && len(u.Path) == 0:
			return "/kept/" + u.Agent.String() + ".md", nil
		}
		return "", errors.New("not found")
	}
	for _, c := range []struct {
		name, script, want string
		errs               int
	}{
		{"a word", "wc -l artifact://3", "wc -l /kept/3", 0},
		{"an output of an agent", "cat agent://0-Review", "cat /kept/0-Review.md", 0},
		{"in quotes of both kinds", `cat "artifact://3" 'artifact://4'`, `cat "/kept/3" '/kept/4'`, 0},
		{"behind an equals sign and a redirection", "x=artifact://3 cat <artifact://4;", "x=/kept/3 cat </kept/4;", 0},
		{"at the end of a sentence", "echo see artifact://3.", "echo see /kept/3.", 0},
		{"lines stay", "agentrun read artifact://3:1-5 artifact://3:raw", "agentrun read artifact://3:1-5 artifact://3:raw", 0},
		{"a query stays", "agentrun read agent://A?q=x", "agentrun read agent://A?q=x", 0},
		{"another word stays", "myartifact://3 http://h/artifact://3", "myartifact://3 http://h/artifact://3", 0},
		{"what is not there stays, and is told", "cat artifact://99", "cat artifact://99", 1},
		{"a path that would need quotes is refused", "cat artifact://7", "cat artifact://7", 1},
		{"what is no URL stays", "cat artifact://x artifact:// artifact://03", "cat artifact://x artifact:// artifact://03", 0},
		{"a part of structured output stays, and is told", "cat agent://A/b", "cat agent://A/b", 1},
	} {
		got, errs := InScript(c.script, find)
		if got != c.want || len(errs) != c.errs {
			t.Errorf("%s: %q, %v; want %q", c.name, got, errs, c.want)
		}
	}
}

func FuzzInScript(f *testing.F) {
	f.Add("cat artifact://3 'agent://A' # x")
	f.Fuzz(func(t *testing.T, script string) {
		same, errs := InScript(script, func(u URL) (string, error) { return "", errors.New("none") })
		if same != script {
			t.Errorf("%q became %q without a path", script, same)
		}
		got, _ := InScript(script, func(u URL) (string, error) { return "/p", nil })
		if strings.Count(got, "/p") != strings.Count(script, "/p")+len(errs) && !strings.Contains(script, "/p") {
			t.Errorf("%q became %q, with %d URLs", script, got, len(errs))
		}
	})
}
