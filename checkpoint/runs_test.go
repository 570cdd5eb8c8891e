package checkpoint

import (
	"testing"

	"github.com/agentrun/agentrun/session"
)

func TestARunOnAnotherHostChangesNoFilesHere(t *testing.T) {
	for _, tt := range []struct {
		name, member string
		want         int
	}{
		{"a run here", ``, 1},
		{"a run on a host", `,"remote":"box"`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			line := `{"type":"custom","id":"a","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","customType":"agentrun.run.start","data":{"run":"r","command":"true"` + tt.member + `}}`
			f := &runs{open: map[string]int{}}
			for _, e := range session.LineEntries([]byte(line), 0, 1) {
				f.add(e)
			}
			if len(f.list) != tt.want {
				t.Errorf("%d spans, want %d", len(f.list), tt.want)
			}
		})
	}
}
