package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobstore/diskkv"
	"github.com/agentrun/agentrun/conversation"
)

func TestAStateAmongTheDataOfAConversationIsRestored(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir()) // the list of homes is not that of who runs the test
	const log = `{"type":"session","version":3,"id":"s1","timestamp":"2026-01-02T03:04:05.000Z","cwd":"/w"}
{"type":"message","id":"u1","parentId":null,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"question","timestamp":1}}
`
	path := filepath.Join(t.TempDir(), "state.vscdb")
	file, _, err := diskkv.Open(t.Context(), path, diskkv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := conversation.NewProjector(file, conversation.ProjectorOptions{}).Project(t.Context(), conversation.Log{ReaderAt: strings.NewReader(log), Size: int64(len(log))})
	if err == nil {
		err = file.SetComposerState(t.Context(), "composer-1", p.State)
	}
	if err == nil {
		err = file.SetComposerState(t.Context(), "composer-2", nil)
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	var out, said bytes.Buffer
	e := &environment{stdout: &out, stderr: &said, home: t.TempDir(), json: true}
	flag := storeFlag{url: "diskkv:" + path, given: true}
	if err := e.stateRestore(t.Context(), "composer-1", "", flag, conversation.ImportOptions{}); err != nil {
		t.Fatal(err)
	}
	var made struct{ Session, Path string }
	if err := json.Unmarshal(out.Bytes(), &made); err != nil {
		t.Fatalf("%s: %v", out.Bytes(), err)
	}
	if data, err := os.ReadFile(made.Path); err != nil || string(data) != log || made.Session != "s1" {
		t.Errorf("session %s is\n%s, %v", made.Session, data, err)
	}
	for _, id := range []string{"composer-2", "composer-3"} {
		if err := e.stateRestore(t.Context(), id, "", flag, conversation.ImportOptions{}); err == nil || !strings.Contains(err.Error(), "nothing is kept of a conversation "+id) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if err := e.stateRestore(t.Context(), "composer-1", "bubble", flag, conversation.ImportOptions{}); err == nil {
		t.Error("a message of it is not kept, and was restored")
	}
}
