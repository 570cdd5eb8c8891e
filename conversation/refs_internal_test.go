package conversation

import (
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// Every bytes field that can be reached from a state is said to hold an id or none.
func TestEveryBytesFieldOfAStateIsKnown(t *testing.T) {
	seen := map[protoreflect.FullName]bool{}
	var look func(m protoreflect.MessageDescriptor)
	look = func(m protoreflect.MessageDescriptor) {
		if seen[m.FullName()] {
			return
		}
		seen[m.FullName()] = true
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			of := f
			if f.IsMap() {
				of = f.MapValue()
			}
			if of.Message() != nil {
				look(of.Message())
			}
			_, isID := idFields[m.FullName()][f.Number()]
			switch plain := plainBytes[m.FullName()][f.Number()]; {
			case of.Kind() == protoreflect.BytesKind && isID == plain:
				t.Errorf("%s is said to hold an id: %v, and no id: %v", f.FullName(), isID, plain)
			case of.Kind() != protoreflect.BytesKind && (isID || plain):
				t.Errorf("%s holds no bytes", f.FullName())
			}
		}
	}
	for _, m := range []protoreflect.ProtoMessage{
		&agentv1.ConversationStateStructure{}, &agentv1.ConversationTurnStructure{}, &agentv1.UserMessage{}, &agentv1.ConversationStep{},
		&agentv1.ConversationSummaryArchive{}, &agentv1.SubagentPersistedState{}, &agentv1.TodoItem{}, &agentv1.FileState{},
		&agentv1.ShellCommand{}, &agentv1.ShellOutput{}, &agentv1.ConversationPlan{}, &agentv1.ConversationSummary{},
	} {
		look(m.ProtoReflect().Descriptor())
	}
	for name := range idFields {
		if !seen[name] && name != "agent.v1.ReadSuccess" {
			t.Errorf("%s cannot be reached from a state", name)
		}
	}
}
