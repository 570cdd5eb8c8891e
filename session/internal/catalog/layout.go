package catalog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/internal/durable"
)

// HomeEnv is the environment variable that names the home.
const HomeEnv = "AGENTRUN_HOME"

// ResolveHome returns the absolute path of the home: flag when it is not empty,
// else $AGENTRUN_HOME, else $XDG_DATA_HOME/agentrun, else
// ~/.local/share/agentrun. The home need not exist. A relative XDG_DATA_HOME is
// ignored, as the XDG base directory specification 0.8 demands.
func ResolveHome(flag string) (string, error) {
	home, from := flag, "--home"
	if home == "" {
		home, from = os.Getenv(HomeEnv), HomeEnv
	}
	if home == "" {
		if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
			home, from = filepath.Join(data, "agentrun"), "XDG_DATA_HOME"
		}
	}
	if home == "" {
		user := userHome()
		if user == "" {
			return "", fmt.Errorf("finding the home of agentrun: this user has no home directory; give --home or set %s", HomeEnv)
		}
		home, from = filepath.Join(user, ".local", "share", "agentrun"), "default"
	}
	abs, err := filepath.Abs(home)
	if err != nil {
		return "", fmt.Errorf("finding the home %s (%s): %w", home, from, err)
	}
	return abs, checkHome(abs, from)
}

// checkHome refuses a home that can never become a directory.
func checkHome(home, from string) error {
	info, err := os.Stat(home)
	switch {
	case err == nil && !info.IsDir():
		return fmt.Errorf("the home %s (%s) is a file, not a directory: name a directory with --home or %s", home, from, HomeEnv)
	case err == nil, errors.Is(err, fs.ErrNotExist):
		return nil
	default:
		return fmt.Errorf("opening the home %s (%s): %w", home, from, err)
	}
}

// SessionsDir holds one directory for each working directory.
func SessionsDir(home string) string { return filepath.Join(home, "sessions") }

// BlobsDir holds the blobs of all sessions.
func BlobsDir(home string) string { return filepath.Join(home, "blobs") }

// TrashDir holds removed sessions until they are collected.
func TrashDir(home string) string { return filepath.Join(home, "trash") }

// KeptBlobsDir holds the blobs that a [Foreign] home's owner may collect because
// it no longer sees the session that needs them. The owner does not know it.
func KeptBlobsDir(home string) string { return filepath.Join(home, "kept-blobs") }

// CachePath is the list cache.
func CachePath(home string) string { return filepath.Join(home, "list.cache") }

// markName marks a home as ours. Its text is for the person who finds it.
const (
	markName = "agentrun.home"
	markText = "This directory is a home of agentrun: sessions, their artifacts and blobs.\nformat 1\n"
)

// foreignSigns are what oh-my-pi 18 and pi 0.73 leave in an agent directory
// besides sessions and blobs.
var foreignSigns = []string{
	"history.db", "terminal-sessions", "agent.db", "models.db", "session-pins.json", "gc.lock",
	"config.yml", "config.yaml", "settings.json", "auth.json", "archive",
}

// Foreign reports whether another program may consider home its own and collect
// blobs in it. oh-my-pi's collector keeps the blobs that it finds named in
// *.jsonl, *.jsonl.gz and their backups: a session that is compressed, trashed
// or removed from there must have its blobs copied to [KeptBlobsDir] first.
//
// The question is decided on the safe side, because a wrong no loses images and
// a wrong yes costs disk space: a home with any sign of another program is
// foreign, and so is one that has sessions or blobs but not our mark (a new
// agent directory has no other signs yet). A home that does not exist, or is
// empty, is not.
func Foreign(fsys durable.FS, home string) (bool, error) {
	fsys = orOS(fsys)
	for _, name := range foreignSigns {
		if found, err := exists(fsys, filepath.Join(home, name)); found || err != nil {
			return found, err
		}
	}
	if marked, err := exists(fsys, filepath.Join(home, markName)); marked || err != nil {
		return false, err
	}
	for _, dir := range []string{SessionsDir(home), BlobsDir(home)} {
		if found, err := exists(fsys, dir); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// MarkHome marks a home as ours, before the first session or blob is put there.
// It makes the home when it is missing. A [Foreign] home is left unmarked, a
// marked one untouched.
func MarkHome(fsys durable.FS, home string) error {
	fsys = orOS(fsys)
	mark := filepath.Join(home, markName)
	if marked, err := exists(fsys, mark); marked || err != nil {
		return err
	}
	if foreign, err := Foreign(fsys, home); foreign || err != nil {
		return err
	}
	if err := durable.MkdirAll(fsys, home); err != nil {
		return fmt.Errorf("making the home: %w", err)
	}
	if err := durable.WriteFile(fsys, mark, false, []byte(markText)); err != nil {
		return fmt.Errorf("marking the home: %w", err)
	}
	return nil
}

// exists reports whether anything stands under name.
func exists(fsys durable.FS, name string) (bool, error) {
	switch _, err := fsys.Identify(name); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("looking at the home: %w", err)
	}
}

func orOS(fsys durable.FS) durable.FS {
	if fsys == nil {
		return durable.OS
	}
	return fsys
}
