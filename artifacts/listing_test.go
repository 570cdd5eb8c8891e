package artifacts

import (
	"context"
	"testing"

	"github.com/agentrun/agentrun/internal/durable"
)

// late is a file system whose clock moves once a minute: all changes of a test
// fall into one tick, as those within 4 ms do on many kernels.
type late struct{ durable.FS }

func (l late) Identify(name string) (durable.Identity, error) {
	id, err := l.FS.Identify(name)
	id.ModTime += 60e9 - id.ModTime%60e9 + 1 // the tick is not over yet
	return id, err
}

func TestANewVersionIsSeenAlthoughTheDirectorysTimeStandsStill(t *testing.T) {
	ctx := context.Background()
	path := t.TempDir()
	reader, writer := Open(path, Options{FS: late{durable.OS}}), Open(path, Options{})
	id, err := ParseAgentID("0-Scout")
	if err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 3; want++ {
		if _, err := writer.WriteAgent(ctx, id, Output{Text: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		a, err := reader.LookupAgent(ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if a.Version != want {
			t.Fatalf("version %d is the newest, the reader sees %d", want, a.Version)
		}
	}
}
