package entry

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tidwall/gjson"
)

// outputNotice words what an execution's meta says about output that was left out,
// in the manner of oh-my-pi 18. That program guesses which lines of the middle it
// left out, so only amounts are repeated of those.
func outputNotice(meta json.RawMessage) string {
	var parts []string
	t := gjson.GetBytes(meta, "truncation")
	if t.IsObject() && str(t.Get("noticeOwner")) != "body" {
		parts = append(parts, truncationNotice(t))
		if id := t.Get("artifactId"); id.Exists() && id.Type != gjson.Null {
			parts = append(parts, "Read artifact://"+id.String()+" for full output")
		}
	}
	if c := gjson.GetBytes(meta, "limits.columnTruncated.maxColumn"); c.Int() > 0 {
		parts = append(parts, fmt.Sprintf("Some lines truncated to %d bytes", c.Int()))
	}
	if len(parts) == 0 {
		return ""
	}
	return "\n\n[" + strings.Join(parts, ". ") + "]"
}

func truncationNotice(t gjson.Result) string {
	total, shown := t.Get("totalLines").Int(), t.Get("outputLines").Int()
	if str(t.Get("direction")) == "middle" {
		elided := t.Get("totalBytes").Int() - t.Get("outputBytes").Int()
		if e := t.Get("elidedBytes"); e.Exists() {
			elided = e.Int()
		}
		return fmt.Sprintf("Showing head and tail of %d lines; %s elided", total, byteCount(max(elided, 0)))
	}
	notice := fmt.Sprintf("Showing %d of %d lines", shown, total)
	if start, end := t.Get("shownRange.start").Int(), t.Get("shownRange.end").Int(); start > 0 && end >= start {
		notice = fmt.Sprintf("Showing lines %d-%d of %d", start, end, total)
	}
	if limit := t.Get("maxBytes"); limit.Exists() && str(t.Get("truncatedBy")) == "bytes" {
		notice += fmt.Sprintf(" (%s limit)", byteCount(limit.Int()))
	}
	return notice
}

// byteCount words n as that program does: 512B, 1.5KB, 1.0MB.
func byteCount(n int64) string {
	switch f := float64(n); {
	case n < 1<<10:
		return fmt.Sprintf("%dB", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1fKB", f/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1fMB", f/(1<<20))
	default:
		return fmt.Sprintf("%.1fGB", f/(1<<30))
	}
}
