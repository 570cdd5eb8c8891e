package conversation_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// The table has every field of the messages that it is about, under its number and name,
// with words in every column, and no others.
func TestTheMappingIsCompleteAgainstTheDescriptors(t *testing.T) {
	table := readTable(t)
	for _, m := range []proto.Message{
		&agentv1.ConversationStateStructure{}, &agentv1.ConversationTurnStructure{}, &agentv1.AgentConversationTurnStructure{}, &agentv1.ShellConversationTurnStructure{},
		&agentv1.ShellCommand{}, &agentv1.ShellOutput{}, &agentv1.ConversationStep{}, &agentv1.AssistantMessage{}, &agentv1.ThinkingMessage{},
		&agentv1.UserMessage{}, &agentv1.SelectedImage{}, &agentv1.ToolCall{}, &agentv1.TodoItem{}, &agentv1.ConversationPlan{}, &agentv1.ConversationSummary{},
		&agentv1.ConversationSummaryArchive{}, &agentv1.FileState{}, &agentv1.FileStateStructure{}, &agentv1.SubagentPersistedState{}, &agentv1.SubagentType{},
		&agentv1.ConversationTokenDetails{}, &agentv1.StepTiming{}, &agentv1.ConversationState{},
		&agentv1.ShellArgs{}, &agentv1.ShellSuccess{}, &agentv1.ShellFailure{}, &agentv1.ShellTimeout{}, &agentv1.ReadToolArgs{}, &agentv1.ReadToolSuccess{},
		&agentv1.EditArgs{}, &agentv1.EditSuccess{}, &agentv1.GrepArgs{}, &agentv1.GrepSuccess{}, &agentv1.GlobToolArgs{}, &agentv1.GlobToolSuccess{},
		&agentv1.TaskArgs{}, &agentv1.TaskSuccess{}, &agentv1.UpdateTodosArgs{}, &agentv1.UpdateTodosSuccess{}, &agentv1.McpArgs{}, &agentv1.McpSuccess{},
	} {
		d := m.ProtoReflect().Descriptor()
		rows := table[string(d.Name())]
		delete(table, string(d.Name()))
		for i := range d.Fields().Len() {
			f := d.Fields().Get(i)
			if rows[fieldName(f)] == 0 {
				t.Errorf("%s has no row for %s", d.Name(), fieldName(f))
			}
			delete(rows, fieldName(f))
		}
		for name := range rows {
			t.Errorf("%s has no field %s", d.Name(), name)
		}
	}
	for name := range table {
		t.Errorf("no test looks at %s", name)
	}
}

func fieldName(f protoreflect.FieldDescriptor) string {
	return fmt.Sprintf("%d `%s`", f.Number(), f.Name())
}

// readTable returns the rows of MAPPING.md by message and field.
func readTable(t *testing.T) map[string]map[string]int {
	t.Helper()
	f, err := os.Open("MAPPING.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, message := map[string]map[string]int{}, ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "## "); ok {
			message = name
			table[message] = map[string]int{}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| | ") {
			continue
		}
		if len(cells) != 4 {
			t.Errorf("%s: %d columns: %s", message, len(cells), line)
			continue
		}
		for i := range cells {
			if cells[i] = strings.TrimSpace(cells[i]); cells[i] == "" {
				t.Errorf("%s: an empty cell: %s", message, line)
			}
		}
		table[message][cells[0]+" "+cells[1]]++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return table
}
