package proto_test

import (
	"os"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
	aiserverv1 "github.com/agentrun/agentrun/gen/aiserver/v1"
	anyrunv1 "github.com/agentrun/agentrun/gen/anyrun/v1"
)

// oneOfEach is a message of each file of messages.
var oneOfEach = []proto.Message{
	&agentv1.ConversationAction{},         // action.proto
	&agentv1.RequestContext{},             // context.proto
	&agentv1.ExecServerMessage{},          // exec.proto
	&agentv1.KvServerMessage{},            // kv.proto
	&agentv1.ConversationState{},          // legacy.proto
	&agentv1.UserMessage{},                // message.proto
	&agentv1.GoalState{},                  // opaque.proto
	&agentv1.AgentServerMessage{},         // run.proto
	&agentv1.ConversationStateStructure{}, // state.proto
	&agentv1.ConversationStep{},           // step.proto
	&agentv1.SubagentType{},               // subagent.proto
	&agentv1.TodoItem{},                   // todo.proto
	&agentv1.EditArgs{},                   // tool_file.proto
	&agentv1.McpArgs{},                    // tool_mcp.proto
	&agentv1.PiEditToolArgs{},             // tool_pi.proto
	&agentv1.CreatePlanArgs{},             // tool_plan.proto
	&agentv1.ShellArgs{},                  // tool_shell.proto
	&agentv1.FetchArgs{},                  // tool_web.proto
	&agentv1.InteractionUpdate{},          // update.proto

	&aiserverv1.StreamConversationRequest{}, // background_composer.proto
	&aiserverv1.BidiRequestId{},             // bidi.proto
	&aiserverv1.CloudAgentState{},           // cloud_state.proto
	&aiserverv1.OptimizedDiffState{},        // opaque.proto

	&anyrunv1.ExternalSnapshot{}, // common.proto
}

// atStart are the files of proto/ that were registered before anything used a message.
var atStart []string

// TestMain uses them all at once, and so for the first time: a file is registered by the
// first use of one of its messages, wherever that comes from, and the race detector looks on.
// Afterwards tests find all messages by name.
func TestMain(m *testing.M) {
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if ours(f) {
			atStart = append(atStart, f.Path())
		}
		return true
	})
	var all sync.WaitGroup
	for _, message := range append(oneOfEach, oneOfEach...) {
		all.Go(func() {
			_ = proto.Unmarshal(nil, proto.Clone(message))
		})
	}
	all.Wait()
	os.Exit(m.Run())
}

// TestStartingRegistersServicesOnly: every program that has the messages would wait for them,
// and few of its runs need any.
func TestStartingRegistersServicesOnly(t *testing.T) {
	slices.Sort(atStart)
	want := []string{
		"agent/v1/agent_service.proto", "agentrun/kv/v1/kv.proto",
		"aiserver/v1/background_composer_service.proto", "aiserver/v1/bidi_service.proto",
	}
	if !slices.Equal(atStart, want) {
		t.Errorf("registered when the test began: %v, want %v", atStart, want)
	}
}
