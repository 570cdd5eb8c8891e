package session_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/session"
)

// TestAReferenceUnderAnyKeyIsReadOrNoted is about references to blobs in blocks where
// neither oh-my-pi nor the persistence rules look for one.
func TestAReferenceUnderAnyKeyIsReadOrNoted(t *testing.T) {
	picture := pngOf(20, 10)
	gone := blobref.Of([]byte("nobody kept it")).String()
	for _, tt := range []struct {
		name, block string
		known       bool // Restore looks there
	}{
		{"the source of an image, as Anthropic has it", `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"REF"}}`, false},
		{"a document", `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"REF"}}`, false},
		{"a resource, as MCP has it", `{"type":"resource","resource":{"uri":"x://y","mimeType":"image/png","blob":"REF"}}`, false},
		{"an image in a block of blocks", `{"type":"group","blocks":[{"type":"image","data":"REF","mimeType":"image/png"}]}`, false},
		{"a URL within an object", `{"type":"input_image","image_url":{"url":"REF"}}`, false},
		{"a URL", `{"type":"input_image","image_url":"REF"}`, true},
		{"an image that is generated", `{"type":"image_generation_call","result":"REF"}`, true},
		{"a key that nobody knows", `{"type":"novel","a/b~c":[{"deep":["REF"]}]}`, false},
		{"an image as it should be", `{"type":"image","data":"REF","mimeType":"image/png"}`, true},
	} {
		for _, there := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, its blob there: %t", tt.name, there), func(t *testing.T) {
				m := newManager(t, session.Options{})
				ref, data := gone, picture
				if there {
					kept := must(base64.StdEncoding.DecodeString(picture))
					if strings.Contains(tt.block, "image_url") {
						data = "data:image/png;base64," + picture
						kept = []byte(data)
					}
					ref = must(blobstore.Put(t.Context(), m.Blobs(), kept)).String()
				}
				block := strings.ReplaceAll(tt.block, "REF", ref)
				path := writeLog(t, m, "s.jsonl", foreignHeader, logLine("a", "", asks("hi")), logLine("b", "a", says("", "x")),
					logLine("c", "b", strings.Replace(answers("x", "out"), `"content":[`, `"content":[`+block+",", 1)),
					logLine("d", "c", says("seen")))
				s := reopen(t, m, path)
				check := func(what string) (repairs int) {
					t.Helper()
					for _, restore := range []bool{true, false} {
						r := must(s.Resume(t.Context(), session.ResumeOptions{Restore: restore}))
						repairs = len(r.Repairs)
						accepted(t, r.Context)
						e, _, err := s.Restore(t.Context(), r.Context.Messages[2].Entry())
						if err != nil {
							t.Fatal(err)
						}
						got := string(e.Raw())
						if restore {
							got = string(must(r.Context.Messages[2].JSON()))
						}
						want, noted := strings.ReplaceAll(tt.block, "REF", data), "blob://sha256/"+strings.TrimPrefix(gone, blobref.Prefix)
						if strings.Contains(got, blobref.Prefix) || there && !strings.Contains(got, want) || !there && !strings.Contains(got, noted) {
							t.Fatalf("%s: %.600s", what, got)
						}
					}
					return repairs
				}
				before := check("as it was")
				want := 1
				if there && tt.known {
					want = 0
				}
				if before != want {
					t.Errorf("%d repairs, want %d", before, want)
				}
				must(s.WriteRepairs(t.Context(), session.ResumeOptions{}))
				s.Close()
				s = reopen(t, m, path)
				if n := check("with its repairs"); n > 0 {
					t.Errorf("%d repairs are left", n)
				}
				noDamage(t, s)
			})
		}
	}
}

func TestWordsThatLookLikeAReferenceStayAsTheyAre(t *testing.T) {
	m := newManager(t, session.Options{})
	s := newSession(t, m)
	ref := must(blobstore.Put(t.Context(), m.Blobs(), []byte("SECRET"))).String()
	signature := `"thinkingSignature":"` + ref + `"`
	appendOK(t, s, user(ref))
	appendOK(t, s, message(`{"role":"assistant","content":[{"type":"thinking","thinking":"`+ref+`",`+signature+`},{"type":"text","text":"`+ref+`"},`+
		`{"type":"toolCall","id":"x","name":"read","arguments":{"path":"`+ref+`"}}],"stopReason":"toolUse","timestamp":1}`))
	appendOK(t, s, message(`{"role":"toolResult","toolCallId":"x","toolName":"read","content":[{"type":"resource","resource":{"uri":"`+ref+`","text":"`+ref+`"}}],"isError":false,"timestamp":2}`))
	r := must(s.Resume(t.Context(), session.ResumeOptions{Restore: true}))
	if len(r.Repairs) > 0 {
		t.Fatalf("repairs %+v", r.Repairs)
	}
	n := 0
	for _, m := range r.Context.Messages {
		n += strings.Count(string(must(m.JSON())), `"`+ref+`"`)
	}
	if n != 7 {
		t.Errorf("the reference stands %d times", n)
	}
}
