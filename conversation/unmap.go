package conversation

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	"github.com/agentrun/agentrun/session/entry"
)

// toolOf is a call of agent.v1 as a block of a session, and its result, nil for none. A
// case that a session has no tool for goes by the name of its field, with its arguments
// and its result as protobuf's JSON.
func toolOf(c *agentv1.ToolCall, id string) (entry.ToolCallBlock, *entry.ToolResultMessage) {
	block := entry.ToolCallBlock{ID: id}
	var text string
	failed, there := false, false
	said := func(s string, bad bool) { text, failed, there = s, bad, true }
	switch t := c.GetTool().(type) {
	case *agentv1.ToolCall_ShellToolCall:
		a := t.ShellToolCall.GetArgs()
		args := map[string]any{"command": a.GetCommand()}
		if a.GetWorkingDirectory() != "" {
			args["cwd"] = a.GetWorkingDirectory()
		}
		if a.GetTimeout() > 0 {
			args["timeout"] = float64(a.GetTimeout()) / 1000
		}
		block.Name, block.Arguments = toolBash, jsonObject(args)
		shellSaid(t.ShellToolCall.GetResult(), said)
	case *agentv1.ToolCall_ReadToolCall:
		a := t.ReadToolCall.GetArgs()
		args := map[string]any{"path": a.GetPath()}
		optional(args, "offset", a.GetOffset(), a != nil && a.Offset != nil)
		optional(args, "limit", a.GetLimit(), a != nil && a.Limit != nil)
		optional(args, "numbers", true, a.GetIncludeLineNumbers())
		block.Name, block.Arguments = toolRead, jsonObject(args)
		if r := t.ReadToolCall.GetResult(); r.GetSuccess() != nil {
			said(r.GetSuccess().GetContent(), false)
		} else if r.GetError() != nil {
			said(r.GetError().GetErrorMessage(), true)
		}
	case *agentv1.ToolCall_EditToolCall:
		block.Name, block.Arguments = editArgs(t.EditToolCall)
		editSaid(t.EditToolCall.GetResult(), said)
	case *agentv1.ToolCall_GrepToolCall:
		a := t.GrepToolCall.GetArgs()
		args := map[string]any{"pattern": a.GetPattern()}
		optional(args, "paths", []string{a.GetPath()}, a.GetPath() != "")
		optional(args, "glob", a.GetGlob(), a.GetGlob() != "")
		optional(args, "ignoreCase", true, a.GetCaseInsensitive())
		optional(args, "context", a.GetContext(), a.GetContext() > 0)
		block.Name, block.Arguments = toolGrep, jsonObject(args)
		if r := t.GrepToolCall.GetResult(); r.GetSuccess() != nil {
			said(grepText(r.GetSuccess()), false)
		} else if r.GetError() != nil {
			said(r.GetError().GetError(), true)
		}
	case *agentv1.ToolCall_GlobToolCall:
		a := t.GlobToolCall.GetArgs()
		args := map[string]any{"glob": a.GetGlobPattern()}
		optional(args, "paths", []string{a.GetTargetDirectory()}, a.GetTargetDirectory() != "")
		block.Name, block.Arguments = toolFind, jsonObject(args)
		if r := t.GlobToolCall.GetResult(); r.GetSuccess() != nil {
			said(strings.Join(r.GetSuccess().GetFiles(), "\n"), false)
		} else if r.GetError() != nil {
			said(r.GetError().GetError(), true)
		}
	case *agentv1.ToolCall_TaskToolCall:
		a := t.TaskToolCall.GetArgs()
		args := map[string]any{"prompt": a.GetPrompt()}
		optional(args, "description", a.GetDescription(), a.GetDescription() != "")
		optional(args, "agent", subagentName(a.GetSubagentType()), subagentName(a.GetSubagentType()) != "")
		optional(args, "background", true, t.TaskToolCall.GetResult().GetSuccess().GetIsBackground())
		block.Name, block.Arguments = toolTask, jsonObject(args)
		if r := t.TaskToolCall.GetResult(); r.GetSuccess() != nil {
			said(taskText(r.GetSuccess()), false)
		} else if r.GetError() != nil {
			said(r.GetError().GetError(), true)
		}
	case *agentv1.ToolCall_UpdateTodosToolCall:
		block.Name, block.Arguments = toolTodo, jsonObject(map[string]any{"items": todoList(t.UpdateTodosToolCall.GetArgs().GetTodos())})
		if r := t.UpdateTodosToolCall.GetResult(); r.GetSuccess() != nil {
			said(string(jsonObject(map[string]any{"items": todoList(r.GetSuccess().GetTodos())})), false)
		} else if r.GetError() != nil {
			said(r.GetError().GetError(), true)
		}
	case *agentv1.ToolCall_McpToolCall:
		a := t.McpToolCall.GetArgs()
		block.Name = a.GetToolName()
		if block.Name == "" {
			block.Name = a.GetName()
		}
		args := map[string]any{}
		for name, v := range a.GetArgs() {
			args[name] = v.AsInterface()
		}
		block.Arguments = jsonObject(args)
		return block, mcpSaid(block, t.McpToolCall.GetResult())
	default:
		return otherTool(c, block)
	}
	if !there {
		return block, nil
	}
	return block, resultOf(block, text, failed)
}

func resultOf(call entry.ToolCallBlock, text string, failed bool) *entry.ToolResultMessage {
	return &entry.ToolResultMessage{
		ToolCallID: call.ID, ToolName: call.Name, Content: entry.Blocks(entry.TextBlock{Text: text}), IsError: failed,
	}
}

func optional(args map[string]any, name string, v any, there bool) {
	if there {
		args[name] = v
	}
}

// jsonObject is an object as JavaScript writes it; what cannot be written is left out.
func jsonObject(v map[string]any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return json.RawMessage("{}")
	}
	return bytes.TrimSpace(buf.Bytes())
}

// shellSaid is what a model read of a command.
func shellSaid(r *agentv1.ShellResult, said func(string, bool)) {
	output := func(interleaved *string, stdout, stderr string) string {
		if interleaved != nil && *interleaved != "" {
			return *interleaved
		}
		if stdout != "" && stderr != "" && !strings.HasSuffix(stdout, "\n") {
			stdout += "\n"
		}
		return stdout + stderr
	}
	switch r := r.GetResult().(type) {
	case *agentv1.ShellResult_Success:
		said(output(r.Success.InterleavedOutput, r.Success.Stdout, r.Success.Stderr), false)
	case *agentv1.ShellResult_Failure:
		text := output(r.Failure.InterleavedOutput, r.Failure.Stdout, r.Failure.Stderr)
		if text == "" {
			text = fmt.Sprintf("Command exited with code %d", r.Failure.ExitCode)
		}
		said(text, true)
	case *agentv1.ShellResult_Timeout:
		said(fmt.Sprintf("Command timed out after %d ms", r.Timeout.TimeoutMs), true)
	case *agentv1.ShellResult_Rejected:
		said("The command was rejected: "+r.Rejected.Reason, true)
	case *agentv1.ShellResult_SpawnError:
		said(r.SpawnError.Error, true)
	case *agentv1.ShellResult_PermissionDenied:
		said(r.PermissionDenied.Error, true)
	}
}

// editArgs is an edit as a write, which it was when it has all of a file's text; else as
// an edit that says what became of the file.
func editArgs(c *agentv1.EditToolCall) (name string, args json.RawMessage) {
	a := c.GetArgs()
	if a != nil && a.StreamContent != nil {
		return toolWrite, jsonObject(map[string]any{"path": a.Path, "content": *a.StreamContent})
	}
	m := map[string]any{"path": a.GetPath()}
	if s := c.GetResult().GetSuccess(); s.GetDiffString() != "" {
		m["patch"] = s.GetDiffString()
	}
	return toolEdit, jsonObject(m)
}

func editSaid(r *agentv1.EditResult, said func(string, bool)) {
	switch r := r.GetResult().(type) {
	case *agentv1.EditResult_Success:
		text := r.Success.GetMessage()
		if text == "" {
			text = r.Success.GetDiffString()
		}
		said(text, false)
	case *agentv1.EditResult_Error:
		text := r.Error.GetModelVisibleError()
		if text == "" {
			text = r.Error.Error
		}
		said(text, true)
	case *agentv1.EditResult_FileNotFound:
		said("There is no file "+r.FileNotFound.Path, true)
	case *agentv1.EditResult_ReadPermissionDenied:
		said("No permission to read "+r.ReadPermissionDenied.Path, true)
	case *agentv1.EditResult_WritePermissionDenied:
		said(r.WritePermissionDenied.Error, true)
	case *agentv1.EditResult_Rejected:
		said("The edit was rejected: "+r.Rejected.Reason, true)
	}
}

// grepText is the result of a search as grep prints it.
func grepText(s *agentv1.GrepSuccess) string {
	var b strings.Builder
	results := make([]*agentv1.GrepUnionResult, 0, len(s.WorkspaceResults)+1)
	for _, key := range sortedKeys(s.WorkspaceResults) {
		results = append(results, s.WorkspaceResults[key])
	}
	for _, r := range append(results, s.ActiveEditorResult) {
		for _, c := range r.GetCount().GetCounts() {
			fmt.Fprintf(&b, "%s:%d\n", c.File, c.Count)
		}
		for _, f := range r.GetFiles().GetFiles() {
			fmt.Fprintln(&b, f)
		}
		for _, f := range r.GetContent().GetMatches() {
			for _, m := range f.Matches {
				mark := ":"
				if m.IsContextLine {
					mark = "-"
				}
				if f.File == "" && m.LineNumber == 0 {
					fmt.Fprintln(&b, m.Content)
					continue
				}
				fmt.Fprintf(&b, "%s%s%d%s%s\n", f.File, mark, m.LineNumber, mark, m.Content)
			}
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// taskText is what a subagent said last.
func taskText(s *agentv1.TaskSuccess) string {
	text := ""
	for _, step := range s.ConversationSteps {
		if m := step.GetAssistantMessage(); m != nil {
			text = m.Text
		}
	}
	return text + s.GetResultSuffix()
}

// todoList is a list of things to do in the words of agent/plan.
func todoList(items []*agentv1.TodoItem) []map[string]any {
	list := make([]map[string]any, 0, len(items))
	for _, item := range items {
		list = append(list, map[string]any{"text": item.GetContent(), "status": todoState(item.GetStatus())})
	}
	return list
}

func mcpSaid(call entry.ToolCallBlock, r *agentv1.McpToolResult) *entry.ToolResultMessage {
	switch r := r.GetResult().(type) {
	case *agentv1.McpToolResult_Success:
		var blocks []entry.Block
		for _, item := range r.Success.Content {
			if image := item.GetImage(); image != nil {
				blocks = append(blocks, imageBlock(image.Data, image.MimeType))
			} else if item.GetText() != nil {
				blocks = append(blocks, entry.TextBlock{Text: item.GetText().Text})
			}
		}
		return &entry.ToolResultMessage{ToolCallID: call.ID, ToolName: call.Name, Content: entry.Blocks(blocks...), IsError: r.Success.IsError}
	case *agentv1.McpToolResult_Error:
		return resultOf(call, r.Error.Error, true)
	case *agentv1.McpToolResult_Rejected:
		return resultOf(call, "The call was rejected: "+r.Rejected.Reason, true)
	case *agentv1.McpToolResult_PermissionDenied:
		return resultOf(call, r.PermissionDenied.Error, true)
	}
	return nil
}

// otherTool is a call that sessions have no tool for.
func otherTool(c *agentv1.ToolCall, block entry.ToolCallBlock) (entry.ToolCallBlock, *entry.ToolResultMessage) {
	block.Name, block.Arguments = "unknown", json.RawMessage("{}")
	m := c.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("tool"))
	if f == nil {
		return block, nil
	}
	block.Name = strings.TrimSuffix(string(f.Name()), "_tool_call")
	call := m.Get(f).Message()
	member := func(name protoreflect.Name) (proto.Message, bool) {
		f := call.Descriptor().Fields().ByName(name)
		if f == nil || f.Message() == nil || f.IsList() || f.IsMap() || !call.Has(f) {
			return nil, false
		}
		return call.Get(f).Message().Interface(), true
	}
	if args, ok := member("args"); ok {
		if text, err := protojson.Marshal(args); err == nil {
			block.Arguments = compact(text)
		}
	}
	result, ok := member("result")
	if !ok {
		return block, nil
	}
	text, err := protojson.Marshal(result)
	if err != nil {
		return block, nil
	}
	r := result.ProtoReflect()
	failed := false
	if one := r.Descriptor().Oneofs(); one.Len() > 0 {
		if f := r.WhichOneof(one.Get(0)); f != nil {
			failed = f.Name() != "success"
		}
	}
	return block, resultOf(block, string(compact(text)), failed)
}

// compact takes out the white space that protojson puts in at random.
func compact(text []byte) []byte {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return text
	}
	return b.Bytes()
}
