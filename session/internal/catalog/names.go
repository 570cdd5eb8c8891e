package catalog

import (
	"fmt"
	"strings"
	"time"
)

// Endings of a session's own files.
const (
	PlainExt = ".jsonl"
	ColdExt  = ".jsonl.zst"
)

// stampLayout is an ISO 8601 timestamp of 24 bytes, as JavaScript prints it,
// before ':' and '.' become '-'.
const (
	isoLayout = "2006-01-02T15:04:05.000Z"
	stampLen  = len(isoLayout)
)

// maxIDBytes leaves room in a file name for the timestamp and every ending.
const maxIDBytes = 128

// CheckID refuses a session id that cannot be part of a file name.
func CheckID(id string) error {
	bad := id == "" || len(id) > maxIDBytes || id[0] == '.' || id[0] == '-'
	for i := 0; i < len(id) && !bad; i++ {
		c := id[i]
		bad = (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.'
	}
	if bad {
		return fmt.Errorf("session id %q cannot name a file: use 1 to %d letters, digits, '-', '_' and '.', beginning with a letter, a digit or '_'", id, maxIDBytes)
	}
	return nil
}

// FileName returns the base name of the log of session id, created at t.
func FileName(t time.Time, id string) (string, error) {
	if err := CheckID(id); err != nil {
		return "", err
	}
	t = t.UTC()
	if y := t.Year(); y < 0 || y > 9999 {
		return "", fmt.Errorf("naming session %s: the year %d does not fit a timestamp", id, y)
	}
	stamp := []byte(t.Format(isoLayout))
	stamp[13], stamp[16], stamp[19] = '-', '-', '-'
	return string(stamp) + "_" + id + PlainExt, nil
}

// ParseFileName splits the base name of a log, plain or cold, that has the form
// of [FileName]. Logs of other programs may have any other name.
func ParseFileName(base string) (created time.Time, id string, ok bool) {
	stem, _, ok := cutExt(base)
	if !ok || len(stem) < stampLen+2 || stem[stampLen] != '_' {
		return time.Time{}, "", false
	}
	created, ok = parseStamp(stem[:stampLen])
	id = stem[stampLen+1:]
	if !ok || CheckID(id) != nil {
		return time.Time{}, "", false
	}
	return created, id, true
}

func parseStamp(s string) (time.Time, bool) {
	if len(s) != stampLen || s[13] != '-' || s[16] != '-' || s[19] != '-' {
		return time.Time{}, false
	}
	var iso [stampLen]byte
	copy(iso[:], s)
	iso[13], iso[16], iso[19] = ':', ':', '.'
	t, err := time.Parse(isoLayout, string(iso[:]))
	// time.Parse takes more than the layout says, such as a sign in the fraction.
	return t, err == nil && t.Format(isoLayout) == string(iso[:])
}

// cutExt cuts the ending of a log from a path or base name.
func cutExt(name string) (stem string, cold, ok bool) {
	if stem, ok := strings.CutSuffix(name, PlainExt); ok {
		return stem, false, true
	}
	stem, ok = strings.CutSuffix(name, ColdExt)
	return stem, ok, ok
}

// Stem returns the path of a log without its ending, and ok false when it has
// none: a log called otherwise has no artifacts, as in oh-my-pi 18, and its other
// files are named after the whole path.
func Stem(path string) (stem string, ok bool) {
	stem, _, ok = cutExt(path)
	if !ok || stem == "" || strings.HasSuffix(stem, "/") {
		return path, false
	}
	return stem, true
}

// ArtifactsDir returns the directory of a session's artifacts, the same for its
// plain and its cold log. ok is false for a log that has none.
func ArtifactsDir(path string) (dir string, ok bool) {
	if stem, ok := Stem(path); ok {
		return stem, true
	}
	return "", false
}

// LockPath is the file locked for one append or rewrite.
func LockPath(path string) string { return beside(path, ".lock") }

// DriverPath is the file locked as long as an agent loop drives the session.
func DriverPath(path string) string { return beside(path, ".driver") }

// IndexPath is the rebuildable index of the log.
func IndexPath(path string) string { return beside(path, ".index") }

// DamagedPath is where damaged bytes of the log are kept. It ends so that no
// program takes it for a log.
func DamagedPath(path string) string { return PlainPath(path) + ".damaged" }

func beside(path, ext string) string {
	stem, _ := Stem(path)
	return stem + ext
}

// PlainPath is where the log is when it is not compressed.
func PlainPath(path string) string {
	if stem, ok := Stem(path); ok {
		return stem + PlainExt
	}
	return path
}

// ColdPath is where the log is when it is compressed.
func ColdPath(path string) string {
	if stem, ok := Stem(path); ok {
		return stem + ColdExt
	}
	return path
}

// IsCold reports whether path names a compressed log.
func IsCold(path string) bool {
	_, cold, ok := cutExt(path)
	return ok && cold
}

// isLogName reports whether a directory entry is a session's log: no dotfiles.
func isLogName(base string) bool {
	if base == "" || base[0] == '.' {
		return false
	}
	_, _, ok := cutExt(base)
	return ok
}

// baseName is filepath.Base for a path that ends in a name.
func baseName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
