package proto_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// tops are the messages that come from files and peers as a whole.
var tops = []protoreflect.FullName{
	"agent.v1.AgentClientMessage",
	"agent.v1.AgentConversationTurn",
	"agent.v1.AgentServerMessage",
	"agent.v1.ConversationAction",
	"agent.v1.ConversationPlan",
	"agent.v1.ConversationState",
	"agent.v1.ConversationStateStructure",
	"agent.v1.ConversationStep",
	"agent.v1.ConversationSummary",
	"agent.v1.ConversationSummaryArchive",
	"agent.v1.ConversationTurnStructure",
	"agent.v1.FileState",
	"agent.v1.KvClientMessage",
	"agent.v1.KvServerMessage",
	"agent.v1.ShellCommand",
	"agent.v1.ShellOutput",
	"agent.v1.SubagentPersistedState",
	"agent.v1.TodoItem",
	"agent.v1.UserMessage",
	"aiserver.v1.BidiAppendRequest",
	"aiserver.v1.CloudAgentState",
	"aiserver.v1.CloudAgentStatePersistedMetadata",
	"aiserver.v1.StreamConversationResponse",
	"anyrun.v1.ExternalSnapshot",
}

// FuzzDecode: any bytes are an error or a message, and a message that is encoded is the same
// message again, with what nobody knows of it.
func FuzzDecode(f *testing.F) {
	for _, s := range recorded(f) {
		if i := slices.Index(tops, s.name); i >= 0 {
			f.Add(byte(i), s.bytes)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		s := sample{tops[int(which)%len(tops)], "fuzzed", data}
		m := s.empty(t)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		written, err := proto.Marshal(m)
		if err != nil {
			t.Fatalf("what was decoded cannot be encoded: %v", err)
		}
		again := s.empty(t)
		if err := proto.Unmarshal(written, again); err != nil {
			t.Fatalf("what was encoded cannot be decoded: %v", err)
		}
		if !proto.Equal(m, again) {
			t.Fatalf("%v became %v", m, again)
		}
		// A peer's text and numbers are in the JSON of a state: it is written or refused.
		if text, err := protojson.Marshal(m); err == nil {
			if err := protojson.Unmarshal(text, s.empty(t)); err != nil {
				t.Fatalf("its JSON cannot be read: %v\n%s", err, text)
			}
		}
	})
}
