package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// Roots are the two directories whose names do not appear in the encoding of a
// working directory below them. Both are absolute and free of symbolic links, or
// empty when there is none.
type Roots struct {
	Home string // of the user, not of agentrun
	Temp string
}

// SystemRoots returns the roots of this process, found as Node's os.homedir and
// os.tmpdir find them: $HOME, else the user database; $TMPDIR, $TMP or $TEMP,
// else /tmp.
func SystemRoots() Roots {
	var r Roots
	if home := userHome(); home != "" {
		r.Home, _ = Resolve(home)
	}
	temp := "/tmp"
	for _, name := range []string{"TMPDIR", "TMP", "TEMP"} {
		if v := os.Getenv(name); v != "" {
			temp = v
			break
		}
	}
	r.Temp, _ = Resolve(temp)
	return r
}

func userHome() string {
	if home := os.Getenv("HOME"); home != "" {
		return home
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// Resolve returns the absolute path of dir with every symbolic link followed.
// What does not exist (a directory deleted since) is resolved as far as its
// parents exist, so that it keeps the name it had.
func Resolve(dir string) (string, error) {
	if strings.IndexByte(dir, 0) >= 0 {
		return "", fmt.Errorf("resolving the working directory %q: a path holds no NUL", dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("resolving the working directory %s: %w", dir, err)
	}
	for existing, rest := abs, ""; ; {
		if real, err := filepath.EvalSymlinks(existing); err == nil {
			return filepath.Join(real, rest), nil
		}
		parent := filepath.Dir(existing)
		if parent == existing {
			return abs, nil
		}
		rest = filepath.Join(filepath.Base(existing), rest)
		existing = parent
	}
}

// maxNameBytes is NAME_MAX of Linux file systems.
const maxNameBytes = 255

// cwdReplacer is the replacement of oh-my-pi 18. It maps several directories to
// one name: /a-b and /a/b share one.
var cwdReplacer = strings.NewReplacer("/", "-", `\`, "-", ":", "-")

// Encode returns the name of the directory that holds the sessions of cwd, a
// path that [Resolve] returned, by the rules of oh-my-pi 18:
//
//	inside the user's home   "-" + relative path, "/", "\" and ":" replaced by "-"
//	else inside the temp dir "-tmp", or "-tmp-" + relative path, the same way
//	else                     "--" + absolute path without leading slash, the same way, + "--"
//
// A name that no file system would take (over 255 bytes; oh-my-pi fails there)
// is cut at a character and ends with "-" and 16 hexadecimal digits of the
// SHA-256 of cwd.
func (r Roots) Encode(cwd string) string {
	name := ""
	if rel, ok := below(r.Home, cwd); ok {
		name = "-" + cwdReplacer.Replace(rel)
	} else if rel, ok := below(r.Temp, cwd); ok {
		name = "-tmp"
		if rel != "" {
			name += "-" + cwdReplacer.Replace(rel)
		}
	} else {
		name = absoluteName(cwd)
	}
	return shorten(name, cwd)
}

// absoluteName is the third rule, and the only one of pi and of oh-my-pi before
// 14: a home directory's sessions may still be under it.
func absoluteName(cwd string) string {
	return "--" + cwdReplacer.Replace(strings.TrimPrefix(cwd, "/")) + "--"
}

// below returns the path of dir relative to root, "" for root itself.
func below(root, dir string) (string, bool) {
	if root == "" {
		return "", false
	}
	rel, err := filepath.Rel(root, dir)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	if rel == "." {
		rel = ""
	}
	return rel, true
}

func shorten(name, cwd string) string {
	if len(name) <= maxNameBytes {
		return name
	}
	sum := sha256.Sum256([]byte(cwd))
	tail := "-" + hex.EncodeToString(sum[:8])
	end := maxNameBytes - len(tail)
	for end > 0 && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + tail
}
