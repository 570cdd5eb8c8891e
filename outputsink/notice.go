package outputsink

import (
	"fmt"
	"strings"

	"github.com/agentrun/agentrun/internal/quantity"
)

// notice returns the line that tells what the summary's text does not show. between is the number of bytes of the
// lines that are missing, or less than 0 when it is not known.
func (s *Summary) notice(r rendered, columns int, between int64) string {
	if !s.Truncated {
		return ""
	}
	if s.Binary {
		what := fmt.Sprintf("Binary output, %d bytes", s.TotalBytes)
		if s.TotalBytes == 1 {
			what = "Binary output, 1 byte"
		}
		return "[" + what + s.whereabouts("it") + "]"
	}
	what := "Showing " + s.shown(r) + fmt.Sprintf(" of %d", r.total)
	if r.screen {
		what += " of the terminal"
	}
	partial := false
	for _, l := range s.Ranges {
		partial = partial || l.Partial
	}
	missing := r.total - s.ShownLines
	switch {
	case partial:
		what += "; " + FormatBytes(s.TotalBytes) + " in all"
	case missing > 0:
		what += "; " + count(missing, "line")
		if between >= 0 {
			what += " (" + FormatBytes(between) + ")"
		}
		switch {
		case len(s.Ranges) == 2:
			what += " between them"
		case r.headLast > 0:
			what += " after them"
		case r.lines > 0:
			what += " before them"
		default:
			what += " in all"
		}
	}
	if s.ShortenedLines > 0 {
		what += fmt.Sprintf("; %s shortened to %d bytes", count(s.ShortenedLines, "line"), columns)
	}
	if !partial && missing == 0 && s.ShortenedLines == 0 {
		what += "; " + count(s.SanitizedBytes, "byte") + " of control sequences and rewritten text left out"
	}
	return "[" + what + s.whereabouts("the rest") + "]"
}

// shown names the lines that are shown.
func (s *Summary) shown(r rendered) string {
	if len(s.Ranges) == 0 {
		return "no lines"
	}
	var parts []string
	named := false
	for i, l := range s.Ranges {
		switch {
		case l.Partial && i == 0 && r.headLast > 0:
			parts = append(parts, fmt.Sprintf("the beginning of line %d", l.First))
			continue
		case l.Partial:
			parts = append(parts, fmt.Sprintf("the end of line %d", l.First))
			continue
		}
		part := fmt.Sprintf("%d-%d", l.First, l.Last)
		if l.First == l.Last {
			part = fmt.Sprint(l.First)
		}
		switch {
		case named:
		case l.First == l.Last && len(s.Ranges) == 1:
			part = "line " + part
		default:
			part = "lines " + part
		}
		named = true
		parts = append(parts, part)
	}
	return strings.Join(parts, " and ")
}

// whereabouts tells where all of the output is.
func (s *Summary) whereabouts(what string) string {
	switch a := s.ArtifactState; a.Kind {
	case ArtifactComplete, ArtifactUnconfirmed:
		return ": " + s.Artifact
	case ArtifactCapped:
		return fmt.Sprintf(": %s, which keeps the first %s and the last %s of %s", s.Artifact, FormatBytes(a.Head), FormatBytes(a.Tail), FormatBytes(s.TotalBytes))
	case ArtifactCut:
		return fmt.Sprintf(": %s, which ends at byte %d because of %s", s.Artifact, a.Head, a.Reason)
	default:
		return fmt.Sprintf("; %s could not be kept: %s", what, a.Reason)
	}
}

func count(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// FormatBytes writes a size in steps of 1024 with one decimal: 512 B, 50.0 KB, 1.9 MB.
func FormatBytes(n int64) string { return quantity.Bytes(n) }
