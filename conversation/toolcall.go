package conversation

import (
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// madeCall is a tool call of a session in the words of agent.v1.
type madeCall struct {
	id, name string
	call     *agentv1.ToolCall
}

// Names of tools of a session that agent.v1 has messages for. All others are mcp.
const (
	toolBash  = "bash"
	toolRead  = "read"
	toolEdit  = "edit"
	toolWrite = "write"
	toolGrep  = "grep"
	toolFind  = "find"
	toolTask  = "task"
	toolTodo  = "todo"
)

// callOf makes a call of a toolCall block. What has not the arguments that a message of
// agent.v1 asks for is an mcp call, which has all of them.
func callOf(block gjson.Result) madeCall {
	c := madeCall{id: block.Get("id").String(), name: block.Get("name").String()}
	id := valid(c.id)
	c.call = &agentv1.ToolCall{ToolCallId: proto.String(id)}
	a := block.Get("arguments")
	has := func(name string) bool { return a.Get(name).Type == gjson.String }
	switch {
	case c.name == toolBash && has("command"):
		args := &agentv1.ShellArgs{Command: str(a, "command"), WorkingDirectory: str(a, "cwd"), ToolCallId: id}
		if t := a.Get("timeout"); t.Type == gjson.Number {
			args.Timeout = clamp(t.Num * 1000) // seconds there, milliseconds here
		}
		c.call.Tool = &agentv1.ToolCall_ShellToolCall{ShellToolCall: &agentv1.ShellToolCall{Args: args}}
	case c.name == toolRead && has("path"):
		args := &agentv1.ReadToolArgs{Path: str(a, "path"), Offset: number(a, "offset"), Limit: number(a, "limit")}
		if a.Get("numbers").Bool() {
			args.IncludeLineNumbers = proto.Bool(true)
		}
		c.call.Tool = &agentv1.ToolCall_ReadToolCall{ReadToolCall: &agentv1.ReadToolCall{Args: args}}
	case c.name == toolEdit && has("path"):
		c.call.Tool = &agentv1.ToolCall_EditToolCall{EditToolCall: &agentv1.EditToolCall{Args: &agentv1.EditArgs{Path: str(a, "path")}}}
	case c.name == toolWrite && has("path") && has("content"):
		args := &agentv1.EditArgs{Path: str(a, "path"), StreamContent: proto.String(str(a, "content"))}
		c.call.Tool = &agentv1.ToolCall_EditToolCall{EditToolCall: &agentv1.EditToolCall{Args: args}}
	case c.name == toolGrep && has("pattern"):
		args := &agentv1.GrepArgs{
			Pattern: str(a, "pattern"), Context: number(a, "context"), HeadLimit: number(a, "limit"), ToolCallId: id,
		}
		if p := firstOf(a, "path", "paths.0"); p != "" {
			args.Path = &p
		}
		if a.Get("glob").Type == gjson.String {
			args.Glob = proto.String(str(a, "glob"))
		}
		if a.Get("ignoreCase").Bool() {
			args.CaseInsensitive = proto.Bool(true)
		}
		c.call.Tool = &agentv1.ToolCall_GrepToolCall{GrepToolCall: &agentv1.GrepToolCall{Args: args}}
	case c.name == toolFind && (has("pattern") || has("glob")):
		args := &agentv1.GlobToolArgs{GlobPattern: firstOf(a, "glob", "pattern")}
		if p := firstOf(a, "path", "paths.0"); p != "" {
			args.TargetDirectory = &p
		}
		c.call.Tool = &agentv1.ToolCall_GlobToolCall{GlobToolCall: &agentv1.GlobToolCall{Args: args}}
	case c.name == toolTask && (has("prompt") || has("task") || has("assignment")):
		args := &agentv1.TaskArgs{Description: str(a, "description"), Prompt: firstOf(a, "prompt", "task", "assignment"), SubagentType: subagentType(str(a, "agent"))}
		c.call.Tool = &agentv1.ToolCall_TaskToolCall{TaskToolCall: &agentv1.TaskToolCall{Args: args}}
	case c.name == toolTodo && a.Get("items").IsArray():
		args := &agentv1.UpdateTodosArgs{Todos: todoItems(a.Get("items"), 0, nil)}
		c.call.Tool = &agentv1.ToolCall_UpdateTodosToolCall{UpdateTodosToolCall: &agentv1.UpdateTodosToolCall{Args: args}}
	default:
		args := &agentv1.McpArgs{Name: valid(c.name), ToolName: valid(c.name), ToolCallId: id, Args: map[string]*structpb.Value{}}
		a.ForEach(func(key, v gjson.Result) bool {
			args.Args[valid(key.Str)] = value(v, 0)
			return true
		})
		c.call.Tool = &agentv1.ToolCall_McpToolCall{McpToolCall: &agentv1.McpToolCall{Args: args}}
	}
	return c
}

// answer puts a result on a call that was made by block, a JSON text.
func answer(call *agentv1.ToolCall, block string, r toolResult) {
	content, failed, d := r.content, r.failed, r.details
	text := resultText(content)
	switch c := call.Tool.(type) {
	case *agentv1.ToolCall_ShellToolCall:
		c.ShellToolCall.Result = shellResult(c.ShellToolCall.Args, text, failed, d)
	case *agentv1.ToolCall_ReadToolCall:
		r := &agentv1.ReadToolResult{}
		if failed {
			r.Result = &agentv1.ReadToolResult_Error{Error: &agentv1.ReadToolError{ErrorMessage: text}}
		} else {
			s := &agentv1.ReadToolSuccess{Path: c.ReadToolCall.Args.Path, IsEmpty: text == "", IncludeLineNumbers: c.ReadToolCall.Args.IncludeLineNumbers}
			s.Output = &agentv1.ReadToolSuccess_Content{Content: text}
			readDetails(s, d)
			r.Result = &agentv1.ReadToolResult_Success{Success: s}
		}
		c.ReadToolCall.Result = r
	case *agentv1.ToolCall_EditToolCall:
		r := &agentv1.EditResult{}
		a := c.EditToolCall.Args
		if failed {
			r.Result = &agentv1.EditResult_Error{Error: &agentv1.EditError{Path: a.Path, Error: text, ModelVisibleError: proto.String(text)}}
		} else {
			s := &agentv1.EditSuccess{Path: a.Path, LinesAdded: number(d, "added"), LinesRemoved: number(d, "removed"), Message: proto.String(text)}
			if a.StreamContent != nil {
				s.AfterFullFileContent = *a.StreamContent
			}
			if d.Get("diff").Type == gjson.String {
				s.DiffString = proto.String(str(d, "diff"))
			}
			r.Result = &agentv1.EditResult_Success{Success: s}
		}
		c.EditToolCall.Result = r
	case *agentv1.ToolCall_GrepToolCall:
		r := &agentv1.GrepResult{}
		if failed {
			r.Result = &agentv1.GrepResult_Error{Error: &agentv1.GrepError{Error: text}}
		} else {
			a := c.GrepToolCall.Args
			r.Result = &agentv1.GrepResult_Success{Success: &agentv1.GrepSuccess{
				Pattern: a.Pattern, Path: a.GetPath(), OutputMode: "content",
				WorkspaceResults: map[string]*agentv1.GrepUnionResult{"": {Result: &agentv1.GrepUnionResult_Content{Content: grepContent(text)}}},
			}}
		}
		c.GrepToolCall.Result = r
	case *agentv1.ToolCall_GlobToolCall:
		r := &agentv1.GlobToolResult{}
		if failed {
			r.Result = &agentv1.GlobToolResult_Error{Error: &agentv1.GlobToolError{Error: text}}
		} else {
			a := c.GlobToolCall.Args
			s := &agentv1.GlobToolSuccess{Pattern: a.GlobPattern, Path: a.GetTargetDirectory(), Files: lines(text)}
			s.TotalFiles = int32(len(s.Files))
			r.Result = &agentv1.GlobToolResult_Success{Success: s}
		}
		c.GlobToolCall.Result = r
	case *agentv1.ToolCall_TaskToolCall:
		r := &agentv1.TaskResult{}
		if failed {
			r.Result = &agentv1.TaskResult_Error{Error: &agentv1.TaskError{Error: text}}
		} else {
			s := &agentv1.TaskSuccess{ConversationSteps: []*agentv1.ConversationStep{{
				Message: &agentv1.ConversationStep_AssistantMessage{AssistantMessage: &agentv1.AssistantMessage{Text: text}},
			}}}
			if gjson.Get(block, "arguments.background").Bool() {
				s.IsBackground, s.ConversationSteps, s.ResultSuffix = true, nil, proto.String(text)
			}
			r.Result = &agentv1.TaskResult_Success{Success: s}
		}
		c.TaskToolCall.Result = r
	case *agentv1.ToolCall_UpdateTodosToolCall:
		r := &agentv1.UpdateTodosResult{}
		if failed {
			r.Result = &agentv1.UpdateTodosResult_Error{Error: &agentv1.UpdateTodosError{Error: text}}
		} else {
			todos := c.UpdateTodosToolCall.Args.Todos
			r.Result = &agentv1.UpdateTodosResult_Success{Success: &agentv1.UpdateTodosSuccess{Todos: todos, TotalCount: int32(len(todos))}}
		}
		c.UpdateTodosToolCall.Result = r
	case *agentv1.ToolCall_McpToolCall:
		c.McpToolCall.Result = &agentv1.McpToolResult{Result: &agentv1.McpToolResult_Success{Success: &agentv1.McpSuccess{
			Content: mcpContent(content), IsError: failed,
		}}}
	}
}

func shellResult(a *agentv1.ShellArgs, text string, failed bool, d gjson.Result) *agentv1.ShellResult {
	cwd := firstOf(d, "cwd")
	if cwd == "" {
		cwd = a.WorkingDirectory
	}
	took := clamp(d.Get("durationMs").Num)
	if d.Get("timedOut").Bool() {
		return &agentv1.ShellResult{Result: &agentv1.ShellResult_Timeout{Timeout: &agentv1.ShellTimeout{
			Command: a.Command, WorkingDirectory: cwd, TimeoutMs: took,
		}}}
	}
	code := int32(0)
	if v := d.Get("exitCode"); v.Type == gjson.Number {
		code = clamp(v.Num)
	} else if failed {
		code = 1 // the log tells no more than that it failed
	}
	if !failed {
		return &agentv1.ShellResult{Result: &agentv1.ShellResult_Success{Success: &agentv1.ShellSuccess{
			Command: a.Command, WorkingDirectory: cwd, ExitCode: code, Signal: str(d, "signal"), Stdout: text,
			InterleavedOutput: proto.String(text), ExecutionTime: took,
		}}}
	}
	return &agentv1.ShellResult{Result: &agentv1.ShellResult_Failure{Failure: &agentv1.ShellFailure{
		Command: a.Command, WorkingDirectory: cwd, ExitCode: code, Signal: str(d, "signal"), Stdout: text,
		InterleavedOutput: proto.String(text), ExecutionTime: took, Aborted: code == -1,
	}}}
}

// readDetails takes what the read tool tells of what it showed.
func readDetails(s *agentv1.ReadToolSuccess, d gjson.Result) {
	count := func(name string) uint32 { return uint32(max(0, clamp(d.Get(name).Num))) }
	s.TotalLines, s.FileSize = count("lines"), count("size")
	if first, last := count("firstLine"), count("lastLine"); first > 0 && last >= first {
		s.ReadRange = &agentv1.ReadRange{StartLine: first, EndLine: last}
		s.ExceededLimit = last < s.TotalLines
	}
	if d.Get("truncation.truncated").Bool() {
		s.ExceededLimit = true
	}
}

// readPath is the file that a call has read, "" for any other call.
func readPath(call *agentv1.ToolCall) string {
	if c, ok := call.Tool.(*agentv1.ToolCall_ReadToolCall); ok && c.ReadToolCall.GetResult().GetSuccess() != nil {
		return c.ReadToolCall.Args.Path
	}
	return ""
}

// resultText is what a result says in words.
func resultText(content gjson.Result) string {
	if content.Type == gjson.String {
		return valid(content.Str)
	}
	first, more := "", []string(nil)
	content.ForEach(func(_, block gjson.Result) bool {
		if block.Get("type").Str == entry.BlockText {
			if text := block.Get("text").String(); first == "" && more == nil {
				first = text
			} else {
				more = append(more, text)
			}
		}
		return true
	})
	if more != nil {
		first += "\n" + strings.Join(more, "\n")
	}
	return valid(first)
}

func mcpContent(content gjson.Result) (items []*agentv1.McpToolResultContentItem) {
	text := func(s string) {
		items = append(items, &agentv1.McpToolResultContentItem{Content: &agentv1.McpToolResultContentItem_Text{Text: &agentv1.McpTextContent{Text: valid(s)}}})
	}
	if content.Type == gjson.String {
		text(content.Str)
		return items
	}
	content.ForEach(func(_, block gjson.Result) bool {
		switch block.Get("type").Str {
		case entry.BlockText:
			text(block.Get("text").String())
		case entry.BlockImage:
			image := selectedImage(block)
			if data := image.GetData(); data != nil {
				items = append(items, &agentv1.McpToolResultContentItem{Content: &agentv1.McpToolResultContentItem_Image{Image: &agentv1.McpImageContent{Data: data, MimeType: image.MimeType}}})
			} else if ref := block.Get("data").Str; image.GetBlobId() != nil {
				// There is no id in an image of a result; all of it would be in every copy of the step.
				text("[" + image.MimeType + " " + ref + "]")
			}
		}
		return true
	})
	return items
}

// grepContent takes lines as grep prints them: path:12:text, path-13-text around it.
func grepContent(text string) *agentv1.GrepContentResult {
	r := &agentv1.GrepContentResult{}
	var file *agentv1.GrepFileMatch
	for _, line := range lines(text) {
		name, number, rest, context := grepLine(line)
		if file == nil || file.File != name {
			file = &agentv1.GrepFileMatch{File: name}
			r.Matches = append(r.Matches, file)
		}
		file.Matches = append(file.Matches, &agentv1.GrepContentMatch{LineNumber: number, Content: rest, IsContextLine: context})
		r.TotalLines++
		if number > 0 && !context {
			r.TotalMatchedLines++
		}
	}
	return r
}

// grepLine takes a line apart. One that is none of grep's is text without a file.
func grepLine(line string) (name string, number int32, rest string, context bool) {
	for at := 0; at < len(line); {
		i := strings.IndexAny(line[at:], ":-")
		if i < 0 {
			break
		}
		i += at
		at = i + 1
		end := at
		for end < len(line) && '0' <= line[end] && line[end] <= '9' {
			end++
		}
		if i == 0 || end == at || end == len(line) || line[end] != line[i] {
			continue
		}
		if n, err := strconv.ParseInt(line[at:end], 10, 32); err == nil {
			return line[:i], int32(n), line[end+1:], line[i] == '-'
		}
	}
	return "", 0, line, false
}

func lines(text string) []string {
	text = strings.TrimSuffix(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func str(v gjson.Result, name string) string { return valid(v.Get(name).String()) }

func firstOf(v gjson.Result, names ...string) string {
	for _, name := range names {
		if m := v.Get(name); m.Type == gjson.String && m.Str != "" {
			return valid(m.Str)
		}
	}
	return ""
}

func number(v gjson.Result, name string) *int32 {
	m := v.Get(name)
	if m.Type != gjson.Number {
		return nil
	}
	return proto.Int32(clamp(m.Num))
}

func clamp(f float64) int32 {
	if math.IsNaN(f) {
		return 0
	}
	return int32(min(max(f, math.MinInt32), math.MaxInt32))
}

// maxDepth bounds how deep values of JSON are taken apart; what is deeper stays text.
const maxDepth = 64

// value is a value of JSON in protobuf's words.
func value(v gjson.Result, depth int) *structpb.Value {
	switch {
	case depth > maxDepth:
		return structpb.NewStringValue(valid(v.Raw))
	case v.Type == gjson.String:
		return structpb.NewStringValue(valid(v.Str))
	case v.Type == gjson.Number:
		return structpb.NewNumberValue(v.Num)
	case v.IsBool():
		return structpb.NewBoolValue(v.Bool())
	case v.IsArray():
		list := &structpb.ListValue{}
		v.ForEach(func(_, item gjson.Result) bool {
			list.Values = append(list.Values, value(item, depth+1))
			return true
		})
		return structpb.NewListValue(list)
	case v.IsObject():
		object := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		v.ForEach(func(key, item gjson.Result) bool {
			object.Fields[valid(key.Str)] = value(item, depth+1)
			return true
		})
		return structpb.NewStructValue(object)
	}
	return structpb.NewNullValue()
}
