package artifacts

import (
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
)

// indexDir holds what can be rebuilt.
const indexDir = ".index"

const (
	logSuffix       = ".log"
	missingSuffix   = ".missing"
	artifactSidecar = ".artifact-"
	agentSidecar    = ".agent-"
	jsonSuffix      = ".json"
)

// maxTool is the longest tool name in a file name, in bytes, as in oh-my-pi 18.
const maxTool = 64

// CleanTool is the form of a tool's name that stands in a file name: runs of
// anything but ASCII letters, digits, '_' and '-' become one '_', the first 64
// characters are kept, '_' at both ends go, and nothing left means "tool". These
// are the rules of oh-my-pi 18.
func CleanTool(tool string) string {
	clean := make([]byte, 0, min(len(tool), maxTool))
	for i, bad := 0, false; i < len(tool) && len(clean) < maxTool; i++ {
		if isWord(tool[i]) {
			clean, bad = append(clean, tool[i]), false
		} else if !bad {
			clean, bad = append(clean, '_'), true
		}
	}
	if name := strings.Trim(string(clean), "_"); name != "" {
		return name
	}
	return "tool"
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || isDigit(c) || c == '_' || c == '-'
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// maxID is the highest number an artifact may have: one more must fit too.
const maxID = math.MaxInt64 - 1

// ParseID reads an artifact number: decimal digits without leading zeros, at
// most 19 of them.
func ParseID(s string) (int64, bool) {
	if s == "" || len(s) > 1 && s[0] == '0' {
		return 0, false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= maxID
}

func logName(id int64, tool string) string {
	return strconv.FormatInt(id, 10) + "." + tool + logSuffix
}

// parseLog reads <n>.<tool>.log.
func parseLog(name string) (id int64, tool string, ok bool) {
	stem, found := strings.CutSuffix(name, logSuffix)
	if !found {
		return 0, "", false
	}
	number, tool, found := strings.Cut(stem, ".")
	if !found || tool == "" || CleanTool(tool) != tool {
		return 0, "", false
	}
	id, ok = ParseID(number)
	return id, tool, ok
}

// parseNumbered reads any name that uses up an artifact number.
func parseNumbered(name string) (id int64, ok bool) {
	if rest, found := strings.CutPrefix(name, artifactSidecar); found {
		rest, found = strings.CutSuffix(rest, jsonSuffix)
		if !found {
			return 0, false
		}
		return ParseID(rest)
	}
	if rest, found := strings.CutSuffix(name, missingSuffix); found {
		return ParseID(rest)
	}
	// Whatever another program calls <n>.<anything>.log, its number is taken,
	// even when the name is not one that is served; so is one with leading
	// zeros, which that program counts as well.
	number, rest, _ := strings.Cut(name, ".")
	if !strings.HasSuffix(rest, logSuffix) && !strings.Contains(rest, logSuffix+".tmp-") {
		return 0, false
	}
	return ParseID(canonical(number))
}

func canonical(digits string) string {
	if t := strings.TrimLeft(digits, "0"); t != "" || digits == "" {
		return t
	}
	return "0"
}

func isRegular(id durable.Identity) bool { return id.Mode&unix.S_IFMT == unix.S_IFREG }

func isDir(id durable.Identity) bool { return id.Mode&unix.S_IFMT == unix.S_IFDIR }
