package entry

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	for _, tt := range []struct {
		name    string
		message Message
		want    string
	}{
		{"a string", UserMessage{Content: PlainText("hi")}, "hi"},
		{"blocks", AssistantMessage{Content: Blocks(ThinkingBlock{Thinking: "no"}, TextBlock{Text: "a"}, ToolCallBlock{}, TextBlock{Text: "b"})}, "a\nb"},
		{"a result", ToolError(ToolCallBlock{ID: "x"}, "broken"), "broken"},
		{"an extension's", ExtensionMessage{Content: PlainText("x")}, "x"},
		{"a command", BashExecutionMessage{Command: "ls", Output: "a\nb", ExitCode: ptr(0)}, "Ran `ls`\n```\na\nb\n```"},
		{"a command without output", BashExecutionMessage{Command: "true"}, "Ran `true`\n(no output)"},
		{"a command that failed", BashExecutionMessage{Command: "false", ExitCode: ptr(1)}, "Ran `false`\n(no output)\n\nCommand exited with code 1"},
		{"a cancelled command", BashExecutionMessage{Command: "sleep", Cancelled: true, ExitCode: ptr(130)}, "Ran `sleep`\n(no output)\n\n(command cancelled)"},
		{"an excluded command", BashExecutionMessage{Command: "ls", ExcludeFromContext: true}, ""},
		{
			"output that was cut",
			BashExecutionMessage{Command: "seq", Output: "1", Meta: json.RawMessage(`{"truncation":{"direction":"tail","truncatedBy":"bytes","totalLines":5000,"outputLines":700,"maxBytes":51200,"shownRange":{"start":4301,"end":5000},"artifactId":"3"}}`)},
			"Ran `seq`\n```\n1\n```\n\n[Showing lines 4301-5000 of 5000 (50.0KB limit). Read artifact://3 for full output]",
		},
		{
			"output that was cut in the middle",
			BashExecutionMessage{Command: "seq", Output: "1", Meta: json.RawMessage(`{"truncation":{"direction":"middle","totalLines":20001,"elidedBytes":592384,"artifactId":1},"limits":{"columnTruncated":{"maxColumn":768}}}`)},
			"Ran `seq`\n```\n1\n```\n\n[Showing head and tail of 20001 lines; 578.5KB elided. Read artifact://1 for full output. Some lines truncated to 768 bytes]",
		},
		{"output whose notice is in it", BashExecutionMessage{Command: "seq", Output: "1", Meta: json.RawMessage(`{"truncation":{"noticeOwner":"body","totalLines":2}}`)}, "Ran `seq`\n```\n1\n```"},
		{"meta of no meaning", BashExecutionMessage{Command: "seq", Output: "1", Meta: json.RawMessage(`[`)}, "Ran `seq`\n```\n1\n```"},
		{"python", PythonExecutionMessage{Code: "1", Output: "1"}, "Ran Python:\n```python\n1\n```\nOutput:\n```\n1\n```"},
		{"python that failed", PythonExecutionMessage{Code: "x", ExitCode: ptr(2)}, "Ran Python:\n```python\nx\n```\n(no output)\n\nExecution failed with code 2"},
		{"cancelled python", PythonExecutionMessage{Code: "x", Cancelled: true}, "Ran Python:\n```python\nx\n```\n(no output)\n\n(execution cancelled)"},
		{"excluded python", PythonExecutionMessage{Code: "x", ExcludeFromContext: true}, ""},
		{"mentioned files", FileMentionMessage{Files: []MentionedFile{{Path: "a", Content: "1"}, {Path: "b", SkippedReason: "binary"}}}, "<file path=\"a\">\n1\n</file>\n\n<file path=\"b\">\n(skipped: binary)\n</file>"},
		{"summaries", BranchSummaryMessage{Summary: "s"}, "s"},
		{"summaries of compactions", CompactionSummaryMessage{Summary: "s"}, "s"},
		{"what is unknown", UnknownMessage{Role: "r"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Text(tt.message); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestByteCount(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1023: "1023B", 1536: "1.5KB", 51200: "50.0KB", 1 << 20: "1.0MB", 3 << 30: "3.0GB"} {
		if got := byteCount(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
