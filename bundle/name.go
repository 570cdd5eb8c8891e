package bundle

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobref"
)

// kind says what a member is.
type kind int

const (
	kindAbout kind = iota
	kindLog
	kindDamaged
	kindArtifact
	kindBlob
	kindManifest
)

// parseName is the one place where names of members are judged. It returns what a
// member is, and for an artifact the name within the artifact directory, which is
// local and clean.
func parseName(name string) (k kind, rel string, err error) {
	switch name {
	case aboutName:
		return kindAbout, "", nil
	case logName:
		return kindLog, "", nil
	case damagedName:
		return kindDamaged, "", nil
	case manifestName:
		return kindManifest, "", nil
	}
	if hex, ok := strings.CutPrefix(name, blobsDir); ok {
		if _, err := blobref.ParseHex(hex); err == nil {
			return kindBlob, hex, nil
		}
	}
	if rel, ok := strings.CutPrefix(name, artifactsDir); ok {
		if why := badArtifact(rel); why != "" {
			return 0, "", fmt.Errorf("the name %.200q is refused: %s", name, why)
		}
		return kindArtifact, rel, nil
	}
	return 0, "", fmt.Errorf("the name %.200q is none of a bundle", name)
}

// Bounds of names within the artifact directory: those of Linux for one element,
// and far more than oh-my-pi nests.
const (
	maxElement  = 255
	maxName     = 2048
	maxElements = 32
)

// badArtifact says why a file called rel in an artifact directory is not carried, ""
// when it is.
func badArtifact(rel string) string {
	switch {
	case rel == "" || len(rel) > maxName:
		return fmt.Sprintf("it has no name of 1 to %d bytes", maxName)
	case !utf8.ValidString(rel):
		return "its name is no UTF-8"
	case strings.ContainsFunc(rel, func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f }):
		return "its name holds control characters"
	case !filepath.IsLocal(rel) || path.Clean(rel) != rel || rel == ".":
		return "its name leads elsewhere"
	}
	elements := strings.Split(rel, "/")
	if len(elements) > maxElements {
		return fmt.Sprintf("it lies deeper than %d directories", maxElements)
	}
	for _, e := range elements {
		if len(e) > maxElement {
			return fmt.Sprintf("its name is longer than %d bytes", maxElement)
		}
	}
	if !artifacts.Carried(rel) {
		return "it is a lock, a temporary, or can be rebuilt"
	}
	return ""
}

// names is a set of members in which no name stands twice, and none is a file and a
// directory at once.
type names map[string]bool // true: a directory

func (n names) add(name string) error {
	if dir, taken := n[name]; taken && dir {
		return fmt.Errorf("%.200q is a file and a directory", name)
	} else if taken {
		return fmt.Errorf("the name %.200q stands there twice", name)
	}
	n[name] = false
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		is, known := n[dir]
		if known && !is {
			return fmt.Errorf("%.200q is a file and a directory", dir)
		}
		if known {
			break
		}
		n[dir] = true
	}
	return nil
}
