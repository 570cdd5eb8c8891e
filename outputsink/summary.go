package outputsink

import (
	"fmt"
	"strings"
)

// Summary tells what came of a stream. All of it is exact.
type Summary struct {
	// View is what to show: Text and, on a line of its own behind it, Notice.
	View string

	// Text is the output as far as it is shown, sanitised. Where lines are missing between its head and its tail
	// stands one line "…".
	Text string

	// Notice is one line in brackets that tells what is not shown and where it is, or "" when everything is shown.
	Notice string

	TotalBytes, TotalLines int64 // of the stream as it came; an unterminated last line is a line, none follows a last newline
	ShownBytes, ShownLines int64 // of Text, the line "…" not counted; a line that is shown in part is a line
	Ranges                 []LineRange
	ShortenedLines         int64 // shown lines that were shortened to Options.MaxColumns bytes

	// SanitizedBytes is how many bytes of the stream are not part of its text: control sequences and characters,
	// invalid UTF-8, and what was rewritten before its line ended. 0 for binary output.
	SanitizedBytes int64

	// Redacted is how many secrets were replaced, by Options.Redact or before the output came here; the latter sets it.
	Redacted int64

	Binary    bool // the output is described, not shown
	Truncated bool // the view is not everything, so that an artifact was wanted

	Artifact      string // URL, or "" when there is none or it holds nothing
	ArtifactState ArtifactState
	ArtifactBytes int64 // size of its file
	Index         Index // of its file; zero without one
}

// ArtifactKind is the fate of an artifact.
type ArtifactKind uint8

const (
	// ArtifactNone: the view is everything, no file was made.
	ArtifactNone ArtifactKind = iota
	// ArtifactComplete: the file holds every byte.
	ArtifactComplete
	// ArtifactCapped: the file holds the beginning and the end, and a line between them that tells what is missing.
	ArtifactCapped
	// ArtifactCut: the file ends at a byte before the end of the stream, because writing failed.
	ArtifactCut
	// ArtifactUnconfirmed: every byte was written, but finishing the file failed, so that it may not last.
	ArtifactUnconfirmed
	// ArtifactMissing: there is no file, because it could not be opened or not even its first byte be written, or
	// because somebody removed it meanwhile: finishing it is fs.ErrNotExist then.
	ArtifactMissing
)

// ArtifactState tells whether an artifact holds what was written, and why not.
type ArtifactState struct {
	Kind ArtifactKind

	// Head and Tail are how many bytes of the stream are in the file: its first and its last ones. Tail is 0 unless
	// the file is capped.
	Head, Tail int64

	// Reason is one line, from the error that was met.
	Reason string

	opened bool
}

// String returns "none", "complete", or a phrase such as "ends at byte 4096 because of no space left on device".
func (a ArtifactState) String() string {
	switch a.Kind {
	case ArtifactComplete:
		return "complete"
	case ArtifactCapped:
		return fmt.Sprintf("keeps the first %d and the last %d bytes", a.Head, a.Tail)
	case ArtifactCut:
		return fmt.Sprintf("ends at byte %d because of %s", a.Head, a.Reason)
	case ArtifactUnconfirmed:
		return "written but not confirmed because of " + a.Reason
	case ArtifactMissing:
		if a.opened {
			return "could not be written because of " + a.Reason
		}
		return "could not be opened because of " + a.Reason
	default:
		return "none"
	}
}

// MarshalText returns String, for JSON.
func (a ArtifactState) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// oneLine makes an error part of a line.
func oneLine(err error) string {
	s := strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(err.Error(), replacement))
	if s = strings.TrimSpace(s); s == "" {
		return "an unknown error"
	}
	return s
}
