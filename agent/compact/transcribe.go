package compact

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
)

// What a summary is made of, in bytes of one text.
const (
	maxOutput = 2000   // of a tool
	maxText   = 20_000 // of anybody
)

// transcribe puts messages into words, and returns the summary that they begin with, without its list, apart.
func (c *Compactor) transcribe(messages []entry.ContextMessage) (lines []string, before string, err error) {
	for _, m := range messages {
		message, err := m.Message()
		if err != nil {
			return nil, "", fmt.Errorf("reading entry %s: %w", m.EntryID, err)
		}
		if s, ok := message.(entry.CompactionSummaryMessage); ok && len(lines) == 0 {
			before, _, _ = strings.Cut(s.Summary, listHead)
			continue
		}
		plain, ok := model.Plain(message)
		if !ok {
			continue
		}
		at := fmt.Sprintf("session://%s/%s", c.Session.ID(), m.EntryID)
		switch plain := plain.(type) {
		case entry.UserMessage:
			lines = append(lines, said("person", plain.Content, maxText, at))
		case entry.ToolResultMessage:
			who := "result of " + plain.ToolName
			if plain.IsError {
				who = "failure of " + plain.ToolName
			}
			lines = append(lines, said(who, plain.Content, maxOutput, at))
		case entry.AssistantMessage:
			if plain.Content.Text() != "" {
				lines = append(lines, said("agent", plain.Content, maxText, at))
			}
			for _, call := range plain.Content.ToolCalls() {
				lines = append(lines, fmt.Sprintf("[call of %s] %s\n", call.Name, shortened(string(call.Arguments), maxOutput, at)))
			}
		}
	}
	return lines, before, nil
}

// said is a line of the transcript.
func said(who string, content entry.Content, limit int, at string) string {
	text := content.Text()
	for _, b := range content.Blocks() {
		if _, ok := b.(entry.ImageBlock); ok {
			text += " [an image, at " + at + "]"
		}
	}
	return fmt.Sprintf("[%s] %s\n", who, shortened(text, limit, at))
}

// shortened is a text without its middle, if it is longer than limit. at is where all of it is.
func shortened(text string, limit int, at string) string {
	if len(text) <= limit {
		return text
	}
	head, tail := strings.ToValidUTF8(text[:limit*2/3], ""), strings.ToValidUTF8(text[len(text)-limit/3:], "")
	return fmt.Sprintf("%s\n[%d bytes left out here; all of it is at %s]\n%s", head, len(text)-len(head)-len(tail), at, tail)
}

const (
	// listHead begins the list behind a summary.
	listHead = "\n\nCited before this point (read them with the tool read):\n"
	// maxListed is how many URLs are listed; all of them are in the details of the entry.
	maxListed = 200
)

// listOf is the list of what was cited, "" for nothing. The newest stand in it if it would be too long.
func listOf(urls []string) string {
	if len(urls) == 0 {
		return ""
	}
	more := max(len(urls)-maxListed, 0)
	list := listHead + "- " + strings.Join(urls[more:], "\n- ")
	if more > 0 {
		list += fmt.Sprintf("\n- and %d older ones, which the details of the compaction's entry list", more)
	}
	return list
}

// inText finds what may be a URL.
var inText = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?:artifact|agent)://[A-Za-z0-9][A-Za-z0-9._/-]*`) })

// cited is what messages refer to: the URLs of artifacts and agent outputs, in the order of their first mention. Text
// that a summary before them has listed counts.
func cited(messages []entry.ContextMessage) []string {
	var urls []string
	known := map[string]bool{}
	add := func(url string) {
		if url = strings.TrimRight(url, "./-"); !known[url] {
			known[url] = true
			if _, err := internalurl.Parse(url); err == nil {
				urls = append(urls, url)
			}
		}
	}
	for _, m := range messages {
		message, err := whole(m)
		if err != nil {
			continue // transcribe has read it, so it is no message of ours
		}
		if s, ok := message.(entry.CompactionSummaryMessage); ok {
			var b entry.Compaction
			var d Details
			if m.Entry().Decode(&b) == nil && json.Unmarshal(b.Details, &d) == nil {
				for _, url := range d.Cited {
					add(url)
				}
			}
			for _, url := range inText().FindAllString(s.Summary, -1) {
				add(url)
			}
			continue
		}
		plain, ok := model.Plain(message)
		if !ok {
			continue
		}
		for _, text := range textsOf(plain) {
			for _, url := range inText().FindAllString(text, -1) {
				add(url)
			}
		}
		if r, ok := message.(entry.ToolResultMessage); ok {
			var d struct {
				Artifact struct {
					ID *int64 `json:"id"`
				} `json:"artifact"`
			}
			if json.Unmarshal(r.Details, &d) == nil && d.Artifact.ID != nil {
				add(fmt.Sprintf("artifact://%d", *d.Artifact.ID))
			}
		}
	}
	return urls
}

// textsOf are the texts of a message of a request.
func textsOf(m entry.Message) []string {
	switch m := m.(type) {
	case entry.UserMessage:
		return []string{m.Content.Text()}
	case entry.ToolResultMessage:
		return []string{m.Content.Text()}
	case entry.AssistantMessage:
		texts := []string{m.Content.Text()}
		for _, call := range m.Content.ToolCalls() {
			texts = append(texts, string(call.Arguments))
		}
		return texts
	}
	return nil
}
