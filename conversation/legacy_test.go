package conversation_test

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

func legacy() *agentv1.ConversationState {
	old := &agentv1.ConversationState{
		RootPromptMessagesJson: []string{`{"role":"system","content":"s"}`},
		Todos:                  []*agentv1.TodoItem{{Id: "1", Content: "do", Status: agentv1.TodoStatus_TODO_STATUS_IN_PROGRESS, Dependencies: []string{"2"}}},
		TokenDetails:           &agentv1.ConversationTokenDetails{UsedTokens: 3, MaxTokens: 4},
		Summary:                &agentv1.ConversationSummary{Summary: "all"},
		Plan:                   &agentv1.ConversationPlan{Plan: "a plan"},
		Turns: []*agentv1.ConversationTurn{
			{Turn: &agentv1.ConversationTurn_AgentConversationTurn{AgentConversationTurn: &agentv1.AgentConversationTurn{
				UserMessage: &agentv1.UserMessage{Text: "hello", MessageId: "u1"},
				Steps: []*agentv1.ConversationStep{
					{Message: &agentv1.ConversationStep_ThinkingMessage{ThinkingMessage: &agentv1.ThinkingMessage{Text: "hm"}}},
					{Message: &agentv1.ConversationStep_AssistantMessage{AssistantMessage: &agentv1.AssistantMessage{Text: "hi"}}},
				},
				RequestId: proto.String("r"),
			}}},
			{Turn: &agentv1.ConversationTurn_ShellConversationTurn{ShellConversationTurn: &agentv1.ShellConversationTurn{
				ShellCommand: &agentv1.ShellCommand{Command: "ls"}, ShellOutput: &agentv1.ShellOutput{Stdout: "out", Stderr: "err", ExitCode: 2},
			}}},
		},
		SummaryArchive: &agentv1.ConversationSummaryArchive{Summary: "first"},
		SummaryArchives: []*agentv1.ConversationSummaryArchive{
			{Summary: "second", WindowTail: 2},
		},
		FileStates: map[string]*agentv1.FileState{"/a": {Content: proto.String("now")}, "/gone": {InitialContent: proto.String("before")}},
	}
	old.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 900, protowire.BytesType), "unknown"))
	return old
}

func TestALegacyStateIsUpgradedAndBecomesASession(t *testing.T) {
	data, err := proto.Marshal(legacy())
	if err != nil {
		t.Fatal(err)
	}
	if f, err := conversation.Detect(data); err != nil || f != conversation.Legacy {
		t.Fatal(f, err)
	}
	store := memory.New(blobstore.Verified)
	root, err := conversation.ReadTransfer(t.Context(), bytes.NewReader(data), store)
	if err != nil {
		t.Fatal(err)
	}
	s := load(t, store, root)
	if s.Len() != 2 || len(s.Message.SummaryArchives) != 2 || s.Message.FileStatesV2["/gone"].Content != nil || !bytes.Contains(s.Message.ProtoReflect().GetUnknown(), []byte("unknown")) {
		t.Errorf("%v", s.Message)
	}
	turn, err := s.Turn(t.Context(), 0)
	if err != nil || turn.User.GetText() != "hello" || len(turn.Steps) != 2 || turn.Agent.GetRequestId() != "r" {
		t.Errorf("%v, %v", turn, err)
	}
	m := home(t)
	got, err := conversation.Import(t.Context(), m, s, conversation.ImportOptions{CWD: "/w"})
	if err != nil || len(got.Holes) > 0 || got.Converted != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	opened, err := m.Open(t.Context(), got.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	c, err := opened.Context(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var roles []string
	for _, msg := range c.Messages {
		roles = append(roles, msg.Role)
	}
	if strings.Join(roles, " ") != "compactionSummary user assistant bashExecution" {
		t.Errorf("%v", roles)
	}
}

func TestFormsOfStatesAreToldApart(t *testing.T) {
	id := bytes.Repeat([]byte{0xab}, 32)
	mode := agentv1.AgentMode_AGENT_MODE_ASK
	for name, c := range map[string]struct {
		m    proto.Message
		want conversation.Format
	}{
		"empty":                {&agentv1.ConversationStateStructure{}, conversation.NAL},
		"ids of turns":         {&agentv1.ConversationStateStructure{Turns: [][]byte{id, id}}, conversation.NAL},
		"a mode":               {&agentv1.ConversationStateStructure{Mode: &mode}, conversation.NAL},
		"files by id":          {&agentv1.ConversationStateStructure{FileStatesV2: map[string]*agentv1.FileStateStructure{"a": {}}}, conversation.NAL},
		"read paths":           {&agentv1.ConversationStateStructure{ReadPaths: []string{"/a"}}, conversation.NAL},
		"inline turns":         {&agentv1.ConversationState{Turns: legacy().Turns}, conversation.Legacy},
		"an inline todo of 32": {&agentv1.ConversationState{Todos: []*agentv1.TodoItem{{Id: "1234567890", Content: "123456789012345678"}}}, conversation.Legacy},
		"inline files":         {&agentv1.ConversationState{FileStates: map[string]*agentv1.FileState{"a": {}}}, conversation.Legacy},
		"a prompt of 32":       {&agentv1.ConversationState{RootPromptMessagesJson: []string{`{"role":"system","content":"12"}`}}, conversation.Legacy},
	} {
		data, err := proto.Marshal(c.m)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := conversation.Detect(data); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
