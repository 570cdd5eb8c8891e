package chat

import (
	"strings"

	"github.com/agentrun/agentrun/cmd/agentrun/internal/runview"
)

// isFence reports whether a line begins or ends a block of code.
func isFence(line string) bool {
	line = strings.TrimLeft(line, " ")
	return strings.HasPrefix(line, "```") || strings.HasPrefix(line, "~~~")
}

// within reports whether a row is between fences.
func (p *part) within(row int) bool {
	if row < len(p.code) {
		return p.code[row]
	}
	return p.in
}

// markdown is a row of an answer with the styles that its marks stand for: headings, code, and what is **bold**. A mark that its
// row does not close stays as it is, and so does every other one: nothing of what was said is left out.
func markdown(row string, code bool) runview.Row {
	if code {
		return runview.Row{{Text: row, Style: runview.Cyan}}
	}
	if title := strings.TrimLeft(row, "#"); len(title) < len(row) && len(row)-len(title) <= 6 && strings.HasPrefix(title, " ") {
		return runview.Row{{Text: strings.TrimSpace(title), Style: runview.Bold}}
	}
	var spans runview.Row
	plain := 0 // where text without a style begins
	for i := 0; i < len(row); {
		mark, style := "", runview.Plain
		switch {
		case strings.HasPrefix(row[i:], "**"):
			mark, style = "**", runview.Bold
		case row[i] == '`':
			mark, style = "`", runview.Cyan
		}
		end := -1
		if mark != "" {
			end = strings.Index(row[i+len(mark):], mark)
		}
		if end <= 0 {
			i += max(1, len(mark))
			continue
		}
		if plain < i {
			spans = append(spans, runview.Span{Text: row[plain:i]})
		}
		from := i + len(mark)
		spans = append(spans, runview.Span{Text: row[from : from+end], Style: style})
		i = from + end + len(mark)
		plain = i
	}
	if plain < len(row) || len(spans) == 0 {
		spans = append(spans, runview.Span{Text: row[plain:]})
	}
	return spans
}
