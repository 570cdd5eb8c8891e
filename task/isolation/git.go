package isolation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// harden are settings that keep git from running anything that a repository names, and from reaching anybody.
var harden = []string{
	"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "-c", "protocol.allow=never",
	"-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "core.pager=cat", "-c", "credential.helper=", "-c", "core.askPass=",
	"-c", "submodule.recurse=false", "-c", "worktree.guessRemote=false", "-c", "core.checkStat=default",
}

// git is one call of git. No shell has a part in it.
type git struct {
	dir  string // where it runs
	own  string // a repository of ours, which no configuration but its own holds for; "" for that of dir
	tree string // the work tree of own, if it has one

	objects string // where more objects are
	stdin   io.Reader
	stdout  io.Writer // nil: returned
}

// environ is all that git is told of the environment: variables that begin with GIT_ would change what it does.
func (g *git) environ() []string {
	env := []string{
		"LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_LITERAL_PATHSPECS=1",
	}
	for _, name := range []string{"PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	if g.own != "" {
		env = append(env, "GIT_DIR="+g.own, "GIT_CONFIG_GLOBAL=/dev/null")
	}
	if g.tree != "" {
		env = append(env, "GIT_WORK_TREE="+g.tree)
	}
	if g.objects != "" {
		env = append(env, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoteList(g.objects))
	}
	return env
}

// quoteList writes one path as a list of paths that are separated by colons.
func quoteList(path string) string {
	if !strings.ContainsAny(path, ":\"\n") {
		return path
	}
	return quotePath(path)
}

// failure is a git that said no.
type failure struct {
	verb, says string
	err        error
}

func (f *failure) Error() string {
	if f.says == "" {
		return fmt.Sprintf("git %s: %v", f.verb, f.err)
	}
	return fmt.Sprintf("git %s: %s", f.verb, f.says)
}

// Unwrap returns why, also where git says it in words alone.
func (f *failure) Unwrap() []error {
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		// In English, which LC_ALL asks for, they are those of Go but for the first letter.
		if strings.Contains(strings.ToLower(f.says), no.Error()) {
			return []error{f.err, no}
		}
	}
	return []error{f.err}
}

// found says whether there is a git.
func found() error {
	if _, err := exec.LookPath("git"); err != nil {
		return errors.New("there is no git here, by which files are compared: install it")
	}
	return nil
}

// run runs git, and returns what it printed.
func (g git) run(ctx context.Context, args ...string) ([]byte, error) {
	if err := found(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "git", append(append([]string{"--no-pager"}, harden...), args...)...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.WaitDelay = g.dir, g.environ(), g.stdin, 10*time.Second
	var out bytes.Buffer
	errs := &head{}
	cmd.Stdout, cmd.Stderr = &out, errs
	if g.stdout != nil {
		cmd.Stdout = g.stdout
	}
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return out.Bytes(), &failure{args[0], strings.TrimPrefix(firstLine(errs.String()), "fatal: "), err}
	}
	return out.Bytes(), nil
}

// head is the beginning of what is written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if room := 64<<10 - h.Len(); room > 0 {
		h.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

func (g git) line(ctx context.Context, args ...string) (string, error) {
	out, err := g.run(ctx, args...)
	return strings.TrimSuffix(string(out), "\n"), err
}

// repository returns the work tree that a directory is in, and its HEAD.
func repository(ctx context.Context, dir string) (top, head string, err error) {
	g := git{dir: dir}
	top, err = g.line(ctx, "rev-parse", "--show-toplevel")
	if f := (*failure)(nil); errors.As(err, &f) {
		return "", "", fmt.Errorf("%s is in no work tree of git, so that nothing can be isolated by one: use the isolation copy (%s)", dir, f.says)
	}
	if err != nil {
		return "", "", err
	}
	if top, err = filepath.EvalSymlinks(top); err != nil {
		return "", "", fmt.Errorf("looking for the work tree of %s: %w", dir, err)
	}
	if top != dir && !strings.HasPrefix(dir, strings.TrimSuffix(top, "/")+"/") {
		// core.worktree can say anything.
		return "", "", fmt.Errorf("the repository of %s says that its work tree is %s, which is elsewhere: use the isolation copy", dir, top)
	}
	if head, err = g.line(ctx, "rev-parse", "--verify", "--end-of-options", "HEAD^{commit}"); err != nil {
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		return "", "", fmt.Errorf("the repository of %s has no commit yet: make one, or use the isolation copy", dir)
	}
	return top, head, nil
}

// addWorktree enters a work tree at the HEAD of a repository, with an index and without files.
func addWorktree(ctx context.Context, top, tree, reason string) error {
	_, err := git{dir: top}.run(ctx, "worktree", "add", "--quiet", "--detach", "--no-checkout", "--lock", "--reason", reason, tree, "HEAD")
	if err == nil {
		_, err = git{dir: tree}.run(ctx, "read-tree", "HEAD")
	}
	return err
}

// dropWorktree removes the entry of a work tree whose files are gone. A repository that has no such entry, or is gone itself,
// is left alone.
func dropWorktree(ctx context.Context, top, tree string) error {
	if info, err := os.Stat(top); err != nil || !info.IsDir() {
		return nil
	}
	list, err := git{dir: top}.run(ctx, "worktree", "list", "--porcelain", "-z")
	if f := (*failure)(nil); errors.As(err, &f) {
		return nil // no repository any more
	}
	if err != nil || !bytes.Contains(list, []byte("worktree "+realOf(tree)+"\x00")) && !bytes.Contains(list, []byte("worktree "+tree+"\x00")) {
		return err
	}
	_, err = git{dir: top}.run(ctx, "worktree", "remove", "--force", "--force", tree)
	return err
}

// realOf is a path without links, as far as it is there.
func realOf(path string) string {
	for at := path; at != filepath.Dir(at); at = filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, strings.TrimPrefix(path, at))
		}
	}
	return path
}

// initRepository makes a repository of ours: attributes of the files change nothing of their bytes.
func initRepository(ctx context.Context, dir string, bare bool) (gitDir string, err error) {
	args := []string{"init", "--quiet", "--template=", "--object-format=sha1"}
	if gitDir = dir; bare {
		args = append(args, "--bare")
	} else {
		gitDir = filepath.Join(dir, ".git")
	}
	if _, err := (git{dir: filepath.Dir(dir)}).run(ctx, append(args, "--", dir)...); err != nil {
		return "", err
	}
	info := filepath.Join(gitDir, "info")
	if err := os.MkdirAll(info, 0o700); err != nil {
		return "", err
	}
	const attributes = "* -text !eol -filter -ident -working-tree-encoding !diff !merge !whitespace\n"
	return gitDir, os.WriteFile(filepath.Join(info, "attributes"), []byte(attributes), 0o600)
}
