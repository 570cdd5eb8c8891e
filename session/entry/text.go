package entry

import (
	"strconv"
	"strings"
)

// Text returns what m says in words, as it is put to a model when the provider
// knows no such message: the text blocks of messages that have content, a sentence
// with fences for executions, the files of a mention, the summary of a summary. It
// is "" for an execution that is excluded from the context.
//
// Images, reasoning and tool calls are not in it.
func Text(m Message) string {
	switch m := m.(type) {
	case UserMessage:
		return m.Content.Text()
	case AssistantMessage:
		return m.Content.Text()
	case ToolResultMessage:
		return m.Content.Text()
	case ExtensionMessage:
		return m.Content.Text()
	case BashExecutionMessage:
		if m.ExcludeFromContext {
			return ""
		}
		var b strings.Builder
		b.WriteString("Ran `" + m.Command + "`\n")
		writeOutput(&b, "", m.Output)
		writeExit(&b, m.Cancelled, "command cancelled", m.ExitCode, "Command exited")
		b.WriteString(outputNotice(m.Meta))
		return b.String()
	case PythonExecutionMessage:
		if m.ExcludeFromContext {
			return ""
		}
		var b strings.Builder
		b.WriteString("Ran Python:\n```python\n" + m.Code + "\n```\n")
		writeOutput(&b, "Output:\n", m.Output)
		writeExit(&b, m.Cancelled, "execution cancelled", m.ExitCode, "Execution failed")
		b.WriteString(outputNotice(m.Meta))
		return b.String()
	case FileMentionMessage:
		var b strings.Builder
		for i, f := range m.Files {
			if i > 0 {
				b.WriteString("\n\n")
			}
			content := f.Content
			if f.SkippedReason != "" {
				content = "(skipped: " + f.SkippedReason + ")"
			}
			b.WriteString("<file path=" + strconv.Quote(f.Path) + ">\n" + content + "\n</file>")
		}
		return b.String()
	case BranchSummaryMessage:
		return m.Summary
	case CompactionSummaryMessage:
		return m.Summary
	}
	return ""
}

func writeOutput(b *strings.Builder, title, output string) {
	if output == "" {
		b.WriteString("(no output)")
		return
	}
	b.WriteString(title + "```\n" + output + "\n```")
}

func writeExit(b *strings.Builder, cancelled bool, how string, code *int, failed string) {
	switch {
	case cancelled:
		b.WriteString("\n\n(" + how + ")")
	case code != nil && *code != 0:
		b.WriteString("\n\n" + failed + " with code " + strconv.Itoa(*code))
	}
}
