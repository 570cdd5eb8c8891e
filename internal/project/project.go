// Package project tells whether two directories hold the same project, so that the
// sessions of one that was moved, renamed or cloned anew are found again.
//
// # The fingerprint
//
// It is one of
//
//	git:<remote>.<root>        the top of a git repository
//	git:<remote>.<root>/<path> a directory below it
//	dir:<identity>             any other directory
//
// remote and root are 12 hexadecimal digits of a SHA-256, of the address of the
// remote called origin (else of the first by name) and of the oldest commit without
// parents that HEAD has, or "-" where there is none or it is not known. The address
// is taken without user, password, scheme and ".git", so that the ways to write one
// are one, and no secret is in the hash's input. identity is 16 digits of the hash of
// the directory's inode number and time of birth (of its device, where a file system
// keeps no such time): it outlives a rename on one file system, and no copy.
//
// Nothing is written into the project. git is asked for the first commit only, without
// hooks, and no longer than Wait; the answer is kept in the home, for it never
// changes. All else is read from the repository's files.
package project

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// Wait is how long git is waited for. A repository of half a million commits takes
// longer; it is known by its remote alone then.
const Wait = 150 * time.Millisecond

const (
	gitPrefix = "git:"
	dirPrefix = "dir:"
	unknown   = "-"
	// maxFile bounds what is read of a file of a repository.
	maxFile = 1 << 20
	// maxPath bounds the path in a fingerprint, for it stands in a header line; of a
	// longer one the hash is taken.
	maxPath = 100
)

// Finder makes fingerprints.
type Finder struct {
	// Cache is the directory for first commits of repositories, which is made when
	// the directory above it is there; "" is none.
	Cache string
	FS    durable.FS    // nil means durable.OS
	Wait  time.Duration // takes the place of the Wait above; 0 is that
}

// Of returns the fingerprint of the directory dir, which is absolute and free of
// symbolic links; "" when nothing tells it from others.
func (f Finder) Of(ctx context.Context, dir string) string {
	if top, git, ok := repository(dir); ok {
		common := commonDir(git)
		remote, root := unknown, unknown
		if at := remoteOf(filepath.Join(common, "config")); at != "" {
			remote = digest("remote", at, 6)
		}
		if commit := f.rootOf(ctx, top, common); commit != "" {
			root = digest("root", commit, 6)
		}
		if remote != unknown || root != unknown {
			return gitPrefix + remote + "." + root + below(top, dir)
		}
	}
	if id := identity(dir); id != "" {
		return dirPrefix + digest("directory", id, 8)
	}
	return ""
}

// Same reports whether two fingerprints are of one project, and of the same directory
// in it. What is not known of one of them does not tell them apart, as long as
// something is known of both.
func Same(a, b string) bool {
	if a == b {
		return a != ""
	}
	x, ok := strings.CutPrefix(a, gitPrefix)
	y, also := strings.CutPrefix(b, gitPrefix)
	if !ok || !also {
		return false
	}
	x, pathX, _ := strings.Cut(x, "/")
	y, pathY, _ := strings.Cut(y, "/")
	remoteX, rootX, _ := strings.Cut(x, ".")
	remoteY, rootY, _ := strings.Cut(y, ".")
	alike := func(a, b string) bool { return a == b || a == unknown || b == unknown }
	shared := remoteX == remoteY && remoteX != unknown || rootX == rootY && rootX != unknown
	return pathX == pathY && shared && alike(remoteX, remoteY) && alike(rootX, rootY)
}

func digest(kind, text string, n int) string {
	sum := sha256.Sum256([]byte(kind + "\x00" + text))
	return hex.EncodeToString(sum[:n])
}

// below is the path of dir in the repository at top, with a slash before it.
func below(top, dir string) string {
	rel, err := filepath.Rel(top, dir)
	switch {
	case err != nil || rel == ".":
		return ""
	case len(rel) > maxPath:
		return "/" + digest("path", rel, 8)
	}
	return "/" + filepath.ToSlash(rel)
}

// repository finds the work tree that dir is in, and its git directory.
func repository(dir string) (top, git string, ok bool) {
	for top = dir; ; top = filepath.Dir(top) {
		at := filepath.Join(top, ".git")
		if info, err := os.Lstat(at); err == nil {
			if info.IsDir() {
				return top, at, true
			}
			// A linked work tree or a submodule: a file that says where.
			if to, found := strings.CutPrefix(firstLine(at), "gitdir: "); found {
				return top, absolute(to, top), true
			}
		}
		if top == filepath.Dir(top) {
			return "", "", false
		}
	}
}

// commonDir is where a git directory of a linked work tree has its configuration.
func commonDir(git string) string {
	if to := firstLine(filepath.Join(git, "commondir")); to != "" {
		return absolute(to, git)
	}
	return git
}

func absolute(path, from string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(from, path)
}

func firstLine(name string) string {
	data, err := durable.ReadFile(durable.OS, name, maxFile)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// known is a file of the cache.
type known struct {
	Repository string `json:"repository"`
	Dev        uint64 `json:"dev"`
	Ino        uint64 `json:"ino"`
	Root       string `json:"root"` // "" when git was too slow
}

// rootOf returns the oldest commit without parents, "" if it is not known.
func (f Finder) rootOf(ctx context.Context, top, common string) string {
	if _, err := os.Lstat(filepath.Join(common, "shallow")); err == nil {
		return "" // its first commits are not here
	}
	id, err := durable.OS.Identify(common)
	if err != nil {
		return ""
	}
	name := ""
	if f.Cache != "" {
		name = filepath.Join(f.Cache, digest("repository", common, 8)+".json")
		var k known
		data, err := durable.ReadFile(f.FS, name, maxFile)
		if err == nil && json.Unmarshal(data, &k) == nil && k.Repository == common && k.Dev == id.Dev && k.Ino == id.Ino && (k.Root == "" || isCommit(k.Root)) {
			return k.Root
		}
	}
	root, final := askGit(ctx, top, cmp.Or(f.Wait, Wait))
	if final && name != "" {
		f.keep(name, known{Repository: common, Dev: id.Dev, Ino: id.Ino, Root: root})
	}
	return root
}

// keep writes a file of the cache, if there is a home yet. That it cannot costs time.
func (f Finder) keep(name string, k known) {
	if _, err := os.Lstat(filepath.Dir(f.Cache)); err != nil {
		return
	}
	if data, err := json.Marshal(k); err == nil && durable.MkdirAll(f.FS, f.Cache) == nil {
		_ = durable.WriteFile(f.FS, name, false, append(data, '\n'))
	}
}

// askGit asks for the first commit. final is false when another time may have another
// answer: there is no commit yet, or no git.
func askGit(ctx context.Context, top string, wait time.Duration) (root string, final bool) {
	asked := ctx
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", "--no-pager", "--no-replace-objects",
		"-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never", "-C", top, "rev-list", "--max-parents=0", "HEAD", "--")
	cmd.Env = append(cleanEnvironment(), "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C")
	cmd.WaitDelay = wait
	out, err := cmd.Output()
	if err != nil {
		return "", ctx.Err() != nil && asked.Err() == nil
	}
	lines := strings.Fields(string(out)) // the newest first
	if len(lines) == 0 || !isCommit(lines[len(lines)-1]) {
		return "", false
	}
	return lines[len(lines)-1], true
}

// cleanEnvironment leaves out what would point git to another repository.
func cleanEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "GIT_") {
			env = append(env, kv)
		}
	}
	return env
}

func isCommit(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}

// identity tells a directory from others on the same file system.
func identity(dir string) string {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, dir, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &st)
	switch {
	case err != nil || st.Ino == 0:
		return ""
	case st.Mask&unix.STATX_BTIME != 0:
		return fmt.Sprintf("%d born %d.%09d", st.Ino, st.Btime.Sec, st.Btime.Nsec)
	}
	return fmt.Sprintf("%d on %d:%d", st.Ino, st.Dev_major, st.Dev_minor)
}
