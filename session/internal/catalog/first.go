package catalog

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// maxFirst bounds the first prompt of a listing, in bytes.
const maxFirst = 200

// firstOf returns what a session begins with, for lists of those without a title: the
// first prompt of the user, or "$ " and the first command, as far as it stands in
// beginning, what was read of the log for its header. It is to be looked at and
// nothing else.
func firstOf(beginning []byte) string {
	for len(beginning) > 0 {
		line, rest, ended := bytes.Cut(beginning, []byte("\n"))
		beginning = rest
		if !ended {
			line = closed(line)
		}
		if text := oneShortLine(promptOf(line)); text != "" {
			return text
		}
	}
	return ""
}

// closed returns a line with what it needs to be JSON when it was cut within the text of
// a prompt, where it is long; others are as they are.
func closed(line []byte) []byte {
	cut := line
	if i := bytes.LastIndexByte(cut, '\\'); i >= 0 && i >= len(cut)-len(`\u0000`) {
		cut = bytes.TrimRight(cut[:i], `\`)
	}
	for range utf8.UTFMax {
		if r, size := utf8.DecodeLastRune(cut); r == utf8.RuneError && size == 1 {
			cut = cut[:len(cut)-1]
		}
	}
	for _, end := range []string{`"}}`, `"}]}}`} {
		if whole := slices.Concat(cut, []byte(end)); ecmajson.Valid(whole) {
			return whole
		}
	}
	return line
}

// promptOf returns the prompt or command of an entry, "" if it has none. All known
// programs put the type first.
func promptOf(line []byte) string {
	rest, ok := bytes.CutPrefix(line, typeFirst)
	switch {
	case ok && bytes.HasPrefix(rest, []byte(`message"`)):
		message := gjson.GetBytes(line, "message")
		switch message.Get("role").Str {
		case "user":
			content := message.Get("content")
			if content.IsArray() {
				content = content.Get(`#(type=="text").text`)
			}
			if strings.HasPrefix(content.Str, "blob:sha256:") {
				return "" // a long one, kept elsewhere
			}
			return content.Str
		case "bashExecution":
			return commandText(message.Get("command").Str)
		}
	case ok && bytes.HasPrefix(rest, []byte(`custom"`)):
		if gjson.GetBytes(line, "customType").Str == "agentrun.run.start" {
			return commandText(gjson.GetBytes(line, "data.command").Str)
		}
	}
	return ""
}

func commandText(command string) string {
	if command == "" {
		return ""
	}
	return "$ " + command
}

// oneShortLine makes one short line of a text, and marks what it leaves out.
func oneShortLine(text string) string {
	const window = 4 * maxFirst // white space may go
	cut := len(text) > window
	if cut {
		text = text[:window]
	}
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if len(text) > maxFirst {
		text, cut = strings.ToValidUTF8(text[:maxFirst], ""), true
	}
	if cut && text != "" {
		text += "…"
	}
	return text
}
