package bundle

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

func TestSignedReasoningTravelsToTheByte(t *testing.T) {
	signed := `{"type":"thinking","thinking":"` + strings.Repeat("thought ", 80_000) + `","thinkingSignature":"` + strings.Repeat("c2lnbmVk", 100_000) + `"}`
	said := `{"role":"assistant","content":[` + signed + `,{"type":"text","text":"` + strings.Repeat("long text ", 60_000) + `"}],"stopReason":"stop","timestamp":2}`
	m := newManager(t)
	s := must(m.Create(t.Context(), t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(t.Context(), entry.MessageBody{Message: json.RawMessage(`{"role":"user","content":"one","timestamp":1}`)}))
	must(s.Append(t.Context(), entry.MessageBody{Message: json.RawMessage(said)}))
	file, _ := export(t, m, s, ExportOptions{})
	other := newManager(t)
	got := must(Import(t.Context(), other, file, ImportOptions{}))
	arrived := must(other.Open(t.Context(), got.Path))
	defer arrived.Close()
	r := must(arrived.Resume(t.Context(), session.ResumeOptions{Restore: true}))
	if len(r.Repairs) > 0 || len(r.Context.Messages) != 2 || string(must(r.Context.Messages[1].JSON())) != said {
		t.Errorf("it is not what was said; repairs %+v", r.Repairs)
	}
}
