package conversation

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// kind says what a blob holds, and so which ids are in it.
type kind uint8

const (
	kindLeaf      kind = iota // no ids: JSON, text, images, and messages without any
	kindState                 // ConversationStateStructure
	kindTurn                  // ConversationTurnStructure
	kindUser                  // UserMessage
	kindStep                  // ConversationStep
	kindArchive               // ConversationSummaryArchive
	kindSubagent              // SubagentPersistedState
	kindSidecar               // the root of a sidecar
	kindChunks                // a node of chunks
	kindTurnNodes             // a node of turns
	kindFiles                 // the list of files of a sidecar
	kindMaybe                 // 32 bytes in a field that nobody here knows
)

var kindNames = [...]string{
	"blob", "state", "turn", "user message", "step", "summary archive", "state of a subagent",
	"sidecar", "node of the sidecar", "node of the sidecar", "list of files", "blob",
}

func (k kind) String() string { return kindNames[k] }

// idFields are the fields of agent.v1 that hold ids, by message and field, and what is in
// those blobs. Together with the fields that are said to hold none (plainBytes) they are
// all bytes fields that can be reached from a state: a test holds that.
var idFields = map[protoreflect.FullName]map[protoreflect.FieldNumber]kind{
	"agent.v1.ConversationStateStructure": {
		1: kindLeaf, 2: kindMaybe, 3: kindLeaf, 6: kindLeaf, 7: kindLeaf, 8: kindTurn, 11: kindArchive,
		12: kindLeaf, 13: kindArchive, 31: kindSubagent,
	},
	"agent.v1.FileStateStructure":             {1: kindLeaf, 2: kindLeaf},
	"agent.v1.ConversationTokenDetails":       {5: kindLeaf},
	"agent.v1.AgentConversationTurnStructure": {1: kindUser, 2: kindStep},
	"agent.v1.ShellConversationTurnStructure": {1: kindLeaf, 2: kindLeaf},
	"agent.v1.UserMessage":                    {10: kindState, 18: kindLeaf, 19: kindLeaf},
	"agent.v1.ConversationSummaryArchive":     {1: kindLeaf, 4: kindLeaf},
	"agent.v1.TruncatedToolCall":              {1: kindStep},
	"agent.v1.ReadToolSuccess":                {9: kindLeaf, 10: kindLeaf},
	"agent.v1.ReadSuccess":                    {7: kindLeaf},
	"agent.v1.SelectedImage":                  {1: kindLeaf},
	"agent.v1.SelectedImage.BlobIdWithData":   {1: kindLeaf},
	"agent.v1.ExtraContextEntry":              {2: kindLeaf},
}

// plainBytes are the bytes fields that hold no ids.
var plainBytes = map[protoreflect.FullName]map[protoreflect.FieldNumber]bool{
	"agent.v1.ReadToolSuccess":              {6: true},
	"agent.v1.ReadSuccess":                  {5: true},
	"agent.v1.SelectedImage":                {8: true},
	"agent.v1.SelectedImage.BlobIdWithData": {2: true},
	"agent.v1.McpImageContent":              {1: true},
	"agent.v1.WriteArgs":                    {5: true},
}

// idsIn calls found for every id in a message and in the messages within it. What is in
// fields that nobody here knows (of newer versions, and of messages whose fields are not
// known at all: InvocationContext 10, SelectedExternalLink 6, SelectedPullRequest 7,
// SelectedGitPRDiffSelection 6, SelectedDocument and SelectedVideo 1 and 9.1) is an id if
// it has 32 bytes, and the store has such a blob: kindMaybe.
func idsIn(m protoreflect.Message, found func(k kind, id []byte)) {
	name := m.Descriptor().FullName()
	ids := idFields[name]
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		k, isID := ids[f.Number()]
		isID = isID && (f.Kind() == protoreflect.BytesKind || f.IsMap())
		switch {
		case f.IsMap():
			of := f.MapValue()
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if of.Message() != nil {
					idsIn(v.Message(), found)
				} else if isID {
					found(k, v.Bytes())
				}
				return true
			})
		case f.IsList():
			list := v.List()
			for i := range list.Len() {
				if f.Message() != nil {
					idsIn(list.Get(i).Message(), found)
				} else if isID {
					found(k, list.Get(i).Bytes())
				}
			}
		case f.Message() != nil:
			idsIn(v.Message(), found)
		case isID:
			found(k, v.Bytes())
		}
		return true
	})
	maybeIn(m.GetUnknown(), 0, found)
}

// maxUnknown is how deep bytes of unknown fields are taken for messages.
const maxUnknown = 6

// maybeIn calls found for everything of 32 bytes in unknown fields.
func maybeIn(b []byte, depth int, found func(k kind, id []byte)) {
	for len(b) > 0 {
		n, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(n, typ, b[tag:])
		if size < 0 {
			return
		}
		if typ == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b[tag:])
			switch {
			case len(value) == 32 && n == SidecarField && depth == 0:
				found(kindSidecar, value)
			case len(value) == 32:
				found(kindMaybe, value)
			case depth < maxUnknown && len(value) > 32:
				maybeIn(value, depth+1, found)
			}
		}
		b = b[tag+size:]
	}
}
