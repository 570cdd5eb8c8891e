package conversation_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/conversation"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// A session goes to another machine in one file, and is the same session there.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "conversation")
	check(err)
	defer os.RemoveAll(dir)
	here, err := session.OpenManager(filepath.Join(dir, "here"), session.Options{})
	check(err)
	there, err := session.OpenManager(filepath.Join(dir, "there"), session.Options{})
	check(err)
	s, err := here.Create(ctx, dir, session.CreateOptions{})
	check(err)
	defer s.Close()
	_, err = s.Append(ctx, entry.UserMessage{Content: entry.PlainText("hello")})
	check(err)

	// The session as a state, in any store.
	store := memory.New(blobstore.Verified)
	p, err := conversation.NewSessionProjector(here, s, store).Project(ctx)
	check(err)
	fmt.Println(p.Turns, "turn")

	// The state with all that it names, as one file.
	transfer, err := conversation.StateForTransfer(ctx, store, p.Root, conversation.Limits{})
	check(err)
	var file bytes.Buffer
	_, err = transfer.Write(&file)
	check(err)

	// There, from the file into a store, and from that into the home.
	other := memory.New(blobstore.Verified)
	root, err := conversation.ReadTransfer(ctx, &file, other)
	check(err)
	state, err := conversation.Load(ctx, other, root, conversation.Limits{})
	check(err)
	got, err := conversation.Import(ctx, there, state, conversation.ImportOptions{})
	check(err)
	fmt.Println(got.Exact, got.Session == s.ID())
	// Output:
	// 1 turn
	// true true
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
