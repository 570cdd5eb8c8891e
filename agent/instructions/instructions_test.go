package instructions_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/agentrun/agentrun/agent/instructions"
	"github.com/agentrun/agentrun/internal/picture"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/workspace"
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// lay writes files below a directory.
func lay(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// project is a home, and a project with a directory sub, in which work is done.
func project(t *testing.T, files map[string]string) (instructions.Project, string) {
	t.Helper()
	top := must(filepath.EvalSymlinks(t.TempDir()))
	lay(t, top, map[string]string{"home/x": "", "project/.git/HEAD": "", "project/sub/x": "", "outside.md": "a secret"})
	lay(t, top, files)
	return must(instructions.NewProject(filepath.Join(top, "home"), filepath.Join(top, "project/sub"))), top
}

func texts(docs []instructions.Document, top string) (all []string) {
	for _, d := range docs {
		all = append(all, strings.TrimPrefix(d.Path, top+"/")+": "+d.Text)
	}
	return all
}

func TestInstructionsAreReadFromTheHomeAndDownToTheWorkingDirectory(t *testing.T) {
	p, top := project(t, map[string]string{
		"home/AGENTS.md": "home", "project/AGENTS.md": "root\n@docs/style.md\n```\n@docs/style.md\n```\nsee @docs/style.md\n",
		"project/CLAUDE.md": "claude", "project/sub/AGENTS.md": "sub", "project/sub/CLAUDE.md": "sub", "project/docs/style.md": "style",
		"AGENTS.md": "above",
	})
	docs, problems := p.Documents()
	want := []string{
		"home/AGENTS.md: home", "project/AGENTS.md: root\nstyle\n```\n@docs/style.md\n```\nsee @docs/style.md", "project/CLAUDE.md: claude", "project/sub/AGENTS.md: sub",
	}
	if got := texts(docs, top); !slices.Equal(got, want) || len(problems) > 0 {
		t.Errorf("got %q, %v\nwant %q", got, problems, want)
	}
	if prompt := instructions.Prompt(docs); !strings.Contains(prompt, fmt.Sprintf("<instructions path=%q>\nsub\n</instructions>", filepath.Join(top, "project/sub/AGENTS.md"))) {
		t.Errorf("the prompt is %s", prompt)
	}
}

func TestWhatIsHostileIsLeftOutAndTold(t *testing.T) {
	for name, test := range map[string]struct {
		text    string
		more    map[string]string
		before  func(t *testing.T, dir string)
		text2   string // what the model is shown of it
		problem string
	}{
		"an import out of the project":    {text: "@../outside.md\n", text2: "[../outside.md is left out:", problem: "escapes"},
		"an import of a key is no import": {text: "@.env\n", more: map[string]string{"project/.env": "KEY=1"}, text2: "@.env"},
		"an import of itself":             {text: "@AGENTS.md\n", text2: "it imports itself", problem: "it imports itself"},
		"imports in a circle":             {text: "@a.md\n", more: map[string]string{"project/a.md": "@b.md\n", "project/b.md": "@a.md"}, text2: "it imports itself", problem: "it imports itself"},
		"a file that is not there":        {text: "@none.md\n", text2: "no such file", problem: "no such file"},
		"what is no text":                 {text: "a\x00b", problem: "no text in UTF-8"},
		"what is too large":               {text: strings.Repeat("x", instructions.MaxFile+1), problem: "are the most"},
		"imports that multiply": {
			text:  strings.Repeat("@a.md\n", 1000),
			more:  map[string]string{"project/a.md": strings.Repeat("@b.md\n", 1000), "project/b.md": strings.Repeat("@c.md\n", 1000), "project/c.md": "\n"},
			text2: "there are more than 100 imports", problem: "more than 100 imports",
		},
		"more than all may have": {
			text: strings.Repeat("@a.md\n", 10), more: map[string]string{"project/a.md": strings.Repeat("0123456789abcde\n", 7000)},
			text2: "[the rest is left out: all instructions together", problem: "all instructions together",
		},
		"a link out of the project": {problem: "escapes", before: func(t *testing.T, dir string) {
			if err := errors.Join(os.Remove(filepath.Join(dir, "AGENTS.md")), os.Symlink("../outside.md", filepath.Join(dir, "AGENTS.md"))); err != nil {
				t.Fatal(err)
			}
		}},
		"a FIFO": {problem: "no regular file", before: func(t *testing.T, dir string) {
			if err := errors.Join(os.Remove(filepath.Join(dir, "AGENTS.md")), syscall.Mkfifo(filepath.Join(dir, "AGENTS.md"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p, top := project(t, map[string]string{"project/AGENTS.md": test.text})
			lay(t, top, test.more)
			if test.before != nil {
				test.before(t, filepath.Join(top, "project"))
			}
			docs, problems := p.Documents()
			prompt := instructions.Prompt(docs)
			if !strings.Contains(prompt, test.text2) || strings.Contains(prompt, "secret") || test.text2 == "" && prompt != "" {
				t.Errorf("the prompt is %.500s", prompt)
			}
			if got := errors.Join(problems...); (got == nil) != (test.problem == "") || got != nil && !strings.Contains(got.Error(), test.problem) {
				t.Errorf("the problems are %v, want %q", got, test.problem)
			}
			if len(prompt) > instructions.MaxTotal+4096 || len(problems) > 2 {
				t.Errorf("%d bytes, %d problems", len(prompt), len(problems))
			}
		})
	}
}

func TestALinkWithinTheProjectCountsOnce(t *testing.T) {
	p, top := project(t, map[string]string{"project/AGENTS.md": "root"})
	if err := os.Symlink("AGENTS.md", filepath.Join(top, "project/CLAUDE.md")); err != nil {
		t.Fatal(err)
	}
	if docs, problems := p.Documents(); len(docs) != 1 || len(problems) > 0 {
		t.Errorf("%q, %v", docs, problems)
	}
}

func TestSkillsAreListedAndRead(t *testing.T) {
	p, _ := project(t, map[string]string{
		"home/skills/release/SKILL.md":               "---\ndescription: of the home\n---\nx",
		"project/.claude/skills/release/SKILL.md":    "---\nname: release\ndescription: |\n  How to\n  release\n---\nTag it.\n",
		"project/sub/.agentrun/skills/test/SKILL.md": "---\ndescription: How to test\n---\nRun it.",
		"project/.claude/skills/bad/SKILL.md":        "no front matter",
		"project/.claude/skills/bad2/SKILL.md":       "---\nname: a b\ndescription: x\n---\n",
		"project/.claude/skills/empty/README.md":     "",
	})
	skills, problems := p.Skills()
	if got := instructions.SkillPrompt(skills); !strings.HasSuffix(got, "\n- release: How to release\n- test: How to test\n") || len(problems) != 2 {
		t.Errorf("the prompt is %s, the problems %v", got, problems)
	}
	st := instructions.SkillTool{Skills: skills}
	if res := must(st.Call(t.Context(), []byte(`{"name":"release"}`))); !strings.HasSuffix(res.Text, "\n\nTag it.") || res.IsError {
		t.Errorf("the skill is %+v", res)
	}
	if res := must(st.Call(t.Context(), []byte(`{"name":"../x"}`))); !res.IsError || !strings.Contains(res.Text, "there are release, test") {
		t.Errorf("a skill that is not there: %+v", res)
	}
}

func TestCommandsAreExpanded(t *testing.T) {
	p, _ := project(t, map[string]string{
		"home/commands/fix.md":                    "of the home",
		"project/.claude/commands/fix.md":         "---\ndescription: mends\n---\nFix $1 ($ARGUMENTS)$9.",
		"project/.agentrun/commands/git/push.md":  "Push.",
		"project/sub/.claude/commands/empty.md":   "---\n---\n",
		"project/sub/.claude/commands/inject.md":  "$1",
		"project/sub/.claude/commands/invalid.md": "\xff",
	})
	for prompt, want := range map[string]string{
		"/fix a $1 b":      "Fix a (a $1 b).",
		"/git:push":        "Push.",
		"/git:push now":    "Push.\n\nnow",
		"/inject $ARG":     "$ARG",
		"/empty":           "!has no text",
		"/invalid":         "!no text in UTF-8",
		"/none x":          "!there is no command /none",
		"/etc/hosts is it": "-", " /fix": "-", "/": "-", "/a::b": "-", "/../x": "-", "/:x": "-",
	} {
		name, arguments, ok := instructions.ParseSlash(prompt)
		if !ok {
			if want != "-" {
				t.Errorf("%s is no command", prompt)
			}
			continue
		}
		c, err := p.Command(name)
		if problem, fails := strings.CutPrefix(want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: %v, want %s", prompt, err, problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", prompt, err)
			continue
		}
		if got, err := c.Expand(arguments); got != want || err != nil {
			t.Errorf("%s is %q, %v; want %q", prompt, got, err, want)
		}
	}
	if _, err := p.Command("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a command that is not there: %v", err)
	}
	if _, err := (instructions.Command{Text: strings.Repeat("$ARGUMENTS", 100000)}).Expand(strings.Repeat("x", 100000)); err == nil {
		t.Error("a prompt without bounds")
	}
}

func TestMentionsBecomeFiles(t *testing.T) {
	p, _ := project(t, map[string]string{
		"project/sub/a.txt": "1\n2", "project/sub/b c.txt": "", "project/sub/bin": "\x00", "project/sub/secret.txt": "x", "project/sub/deep/x": "", "project/sub/big": strings.Repeat("x", instructions.MaxMentionedFile+1),
	})
	w := must(workspace.Open(workspace.Options{Dir: p.Dir}))
	defer w.Close()
	names := instructions.ParseMentions(`look at @a.txt, (@a.txt) @"b c.txt" @bin @big @../../outside.md me@example.org @nobody @.`)
	if want := []string{"a.txt", "b c.txt", "bin", "big", "../../outside.md", "nobody"}; !slices.Equal(names, want) {
		t.Fatalf("the names are %q", names)
	}
	may := func(name string) error {
		if name == "secret.txt" {
			return errors.New("it is kept from you")
		}
		return nil
	}
	m, problems := instructions.Mention(w, append(names, "secret.txt", "deep"), may)
	for i, want := range []string{"outside.md, which the model is not shown: ../../outside.md is outside of", "nobody, which the model is not shown: there is no such file", "secret.txt, which the model is not shown: it is kept from you", "deep, which the model is not shown: it is a directory"} {
		if i >= len(problems) || !strings.Contains(problems[i].Error(), want) {
			t.Fatalf("the problems are %q, which lack %q", problems, want)
		}
	}
	var got []string
	for _, f := range m.Files {
		got = append(got, fmt.Sprintf("%s %q %s", f.Path, f.Content, f.SkippedReason))
	}
	if want := []string{`a.txt "1\n2" `, `b c.txt "" `, `bin "" binary`, `big "" tooLarge`}; !slices.Equal(got, want) || *m.Files[0].LineCount != 2 {
		t.Errorf("the files are %q", got)
	}
	if m, problems := instructions.Mention(w, []string{"nobody"}, nil); m != nil || len(problems) != 1 {
		t.Errorf("%v, %v", m, problems)
	}
}

func TestMentionsBeyondTheBoundAreTold(t *testing.T) {
	var prompt strings.Builder
	files := map[string]string{}
	for i := range instructions.MaxMentions + 3 {
		fmt.Fprintf(&prompt, "@f%d ", i)
		files[fmt.Sprintf("project/sub/f%d", i)] = "x"
	}
	p, _ := project(t, files)
	w := must(workspace.Open(workspace.Options{Dir: p.Dir}))
	defer w.Close()
	m, problems := instructions.Mention(w, instructions.ParseMentions(prompt.String()), nil)
	want := "the prompt mentions f50 and 2 more, which the model is not shown: the first 50 are looked at"
	if len(m.Files) != instructions.MaxMentions || len(problems) != 1 || problems[0].Error() != want {
		t.Errorf("%d files, and the problems are %q", len(m.Files), problems)
	}
}

func TestPicturesThatAreMentionedAreShown(t *testing.T) {
	var large, small bytes.Buffer
	for w, side := range map[*bytes.Buffer]int{&large: picture.MaxSide + 100, &small: 10} {
		if err := png.Encode(w, image.NewGray(image.Rect(0, 0, side, 10))); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{"project/sub/large.png": large.String(), "project/sub/cut.png": small.String()[:40]}
	var names []string
	for i := range instructions.MaxPictures {
		names = append(names, fmt.Sprintf("%d.png", i))
		files["project/sub/"+names[i]] = small.String()
	}
	p, _ := project(t, files)
	w := must(workspace.Open(workspace.Options{Dir: p.Dir}))
	defer w.Close()
	m, problems := instructions.Mention(w, append([]string{"large.png", "cut.png"}, names...), nil)
	if len(problems) != 0 || len(m.Files) != len(names)+2 {
		t.Fatalf("%d files, %v", len(m.Files), problems)
	}
	shown := 0
	for _, f := range m.Files {
		if f.Image == nil {
			continue
		}
		shown++
		c, err := png.DecodeConfig(base64.NewDecoder(base64.StdEncoding, strings.NewReader(f.Image.Data)))
		if err != nil || c.Width > picture.MaxSide || f.SkippedReason != "" {
			t.Errorf("%s: %v, %+v, %q", f.Path, err, c, f.SkippedReason)
		}
	}
	if big, cut, last := m.Files[0], m.Files[1], m.Files[len(m.Files)-1]; shown != instructions.MaxPictures || cut.SkippedReason != "binary" ||
		last.SkippedReason != "tooLarge" || big.Content != fmt.Sprintf("(a picture of %d x 10 pixels)", picture.MaxSide+100) {
		t.Errorf("%d shown; %q, %q, %q", shown, cut.SkippedReason, last.SkippedReason, big.Content)
	}
	// A model sees them.
	plain, _ := model.Plain(*m)
	seen := 0
	for _, b := range plain.(entry.UserMessage).Content.Blocks() {
		if _, ok := b.(entry.ImageBlock); ok {
			seen++
		}
	}
	if seen != instructions.MaxPictures {
		t.Errorf("a model sees %d", seen)
	}
}

func FuzzPrompts(f *testing.F) {
	f.Add("/fix it", "Fix $ARGUMENTS")
	f.Add("see @\"a b\" and @c.", "---\nname: x\ndescription: y\n---\n@import.md\n")
	f.Fuzz(func(t *testing.T, prompt, file string) {
		for _, name := range instructions.ParseMentions(prompt) {
			if name == "" || !utf8.ValidString(name) || strings.ContainsAny(name, "\x00\n@") {
				t.Errorf("%q mentions %q", prompt, name)
			}
		}
		if to, ok := instructions.ParseImport(prompt); ok && (filepath.IsAbs(to) || strings.ContainsAny(to, " \x00\n\\")) {
			t.Errorf("%q imports %q", prompt, to)
		}
		name, arguments, ok := instructions.ParseSlash(prompt)
		if ok && strings.ContainsAny(name, "/.\\ ") {
			t.Errorf("%q is the command %q", prompt, name)
		}
		if c, err := instructions.ParseCommand(name, "x.md", file); err == nil {
			_, _ = c.Expand(arguments)
		}
		if s, err := instructions.ParseSkill("a/SKILL.md", file); err == nil && (s.Name == "" || strings.ContainsAny(s.Description, "\n\x1b")) {
			t.Errorf("%q is %+v", file, s)
		}
	})
}
