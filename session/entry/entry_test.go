package entry

import (
	"reflect"
	"slices"
	"testing"
	"time"
	"unsafe"
)

func TestEntryIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(Entry{}); size > 120 {
		t.Fatalf("an Entry takes %d bytes; slices of ten million of them need it at 120 or less", size)
	}
}

func TestEntryGivesBackItsEnvelope(t *testing.T) {
	for _, env := range []Envelope{
		{},
		{Type: "x", ID: "1", Offset: 7, Line: 3},
		{Type: "message", ID: "2", Parent: "1", HasParent: true, Time: time.UnixMilli(1234567890123).UTC()},
		{Type: "message", ID: "2", HasParent: true, Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		{Type: "message", ID: "2", Time: time.UnixMilli(0).UTC()},
	} {
		e := New([]byte("{}"), env)
		if got := e.Envelope(); got != env {
			t.Errorf("got %+v, want %+v", got, env)
		}
		if e.Type() != env.Type || e.ID() != env.ID || e.Parent() != env.Parent || e.HasParent() != env.HasParent ||
			!e.Time().Equal(env.Time) || e.Offset() != env.Offset || e.Line() != env.Line || string(e.Raw()) != "{}" {
			t.Errorf("the methods of %+v disagree with it", env)
		}
	}
}

func TestTypeNameKeepsKnownTypesWithoutAllocating(t *testing.T) {
	known := []byte("service_tier_change")
	if n := testing.AllocsPerRun(100, func() { TypeName(known) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for _, name := range []string{
		TypeMessage, TypeModelUsage, TypeThinkingLevelChange, TypeModelChange, TypeServiceTierChange, TypeCompaction,
		TypeBranchSummary, TypeResetBoundary, TypeCustom, TypeCustomMessage, TypeLabel, TypeTitleChange,
		TypeTTSRInjection, TypeSessionInit, TypeModeChange, TypeCredentialPin, TypeSessionInfo, "else", "",
	} {
		if got := TypeName([]byte(name)); got != name {
			t.Errorf("TypeName(%q) = %q", name, got)
		}
	}
}

func TestRole(t *testing.T) {
	for _, tt := range []struct{ name, raw, want string }{
		{"canonical line", `{"type":"message","id":"1","parentId":null,"timestamp":"","message":{"role":"user","content":""}}`, "user"},
		{"unknown role", `{"type":"message","message":{"role":"system"}}`, "system"},
		{"white space", `{ "type" : "message" , "message" : { "role" : "assistant" } }`, "assistant"},
		{"role is not first", `{"type":"message","message":{"content":[{"role":"user"}],"role":"assistant"}}`, "assistant"},
		{"envelope behind the message", `{"message":{"role":"user"},"type":"message"}`, "user"},
		{"another object has a message too", `{"type":"message","x":{"y":1,"message":{"role":"user"}},"message":{"role":"assistant"}}`, "assistant"},
		{"an array has one", `{"type":"message","x":[{"a":1,"message":{"role":"user"}}],"message":{"role":"assistant"}}`, "assistant"},
		{"a string looks like one", `{"type":"message","x":"\",\"message\":{\"role\":\"user\"","message":{"role":"assistant"}}`, "assistant"},
		{"escaped role", `{"type":"message","message":{"role":"\u0075ser"}}`, "user"},
		{"role is no string", `{"type":"message","message":{"role":7}}`, ""},
		{"no role", `{"type":"message","message":{}}`, ""},
		{"message is no object", `{"type":"message","message":"role"}`, ""},
		{"no message", `{"type":"message"}`, ""},
		{"custom_message", `{"type":"custom_message","content":""}`, RoleCustom},
		{"branch_summary", `{"type":"branch_summary"}`, RoleBranchSummary},
		{"compaction", `{"type":"compaction"}`, RoleCompactionSummary},
		{"another type with a message", `{"type":"custom","message":{"role":"user"}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := parse([]byte(tt.raw)).Role(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestToolCallIDs(t *testing.T) {
	for _, tt := range []struct {
		name, raw string
		want      []string
		answers   string
	}{
		{"calls among other blocks", `{"type":"message","message":{"role":"assistant","content":[{"type":"toolCall","id":"a"},{"type":"text","id":"t","text":"toolCall"},{"type":"toolCall","id":"b"}]}}`, []string{"a", "b"}, ""},
		{"escaped type", `{"type":"message","message":{"role":"assistant","content":[{"type":"\u0074oolCall","id":"a"}]}}`, []string{"a"}, ""},
		{"call without an id", `{"type":"message","message":{"role":"assistant","content":[{"type":"toolCall"}]}}`, []string{""}, ""},
		{"string content", `{"type":"message","message":{"role":"assistant","content":"toolCall"}}`, nil, ""},
		{"a user has none", `{"type":"message","message":{"role":"user","content":[{"type":"toolCall","id":"a"}]}}`, nil, ""},
		{"a result", `{"type":"message","message":{"role":"toolResult","toolCallId":"a"}}`, nil, "a"},
		{"a result of nothing", `{"type":"message","message":{"role":"toolResult","toolCallId":{}}}`, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := parse([]byte(tt.raw))
			if got := e.ToolCallIDs(); !slices.Equal(got, tt.want) {
				t.Errorf("ToolCallIDs() = %q, want %q", got, tt.want)
			}
			if got := e.ToolCallID(); got != tt.answers {
				t.Errorf("ToolCallID() = %q, want %q", got, tt.answers)
			}
		})
	}
}

func TestImages(t *testing.T) {
	ref := refPrefix + "00"
	for _, tt := range []struct {
		name, raw string
		want      []Image
	}{
		{"content", `{"type":"message","message":{"role":"user","content":[{"type":"image","data":"QQ==","mimeType":"image/png"},{"type":"text","text":""},{"type":"image","data":"` + ref + `"}]}}`, []Image{{"QQ==", "image/png"}, {ref, ""}}},
		{"execution", `{"type":"message","message":{"role":"bashExecution","images":[{"type":"image","data":"QQ==","mimeType":"image/png"}]}}`, []Image{{"QQ==", "image/png"}}},
		{"mentioned file", `{"type":"message","message":{"role":"fileMention","files":[{"path":"x"},{"path":"y","image":{"type":"image","data":"QQ==","mimeType":"image/png"}}]}}`, []Image{{"QQ==", "image/png"}}},
		{"custom message", `{"type":"custom_message","content":[{"type":"image","data":"QQ==","mimeType":"image/gif"}]}`, []Image{{"QQ==", "image/gif"}}},
		{"an image without data", `{"type":"message","message":{"role":"user","content":[{"type":"image"}]}}`, nil},
		{"no image", `{"type":"message","message":{"role":"user","content":"image"}}`, nil},
		{"custom data", `{"type":"custom","content":[{"type":"image","data":"QQ=="}]}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := parse([]byte(tt.raw)).Images()
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			for _, i := range got {
				if i.IsRef() != (i.Data == ref) {
					t.Errorf("IsRef() = %v for %q", i.IsRef(), i.Data)
				}
			}
		})
	}
}
