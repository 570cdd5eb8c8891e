package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/conversation"
)

// forgetting is a store that keeps nothing.
type forgetting struct{ blobstore.Store }

func (forgetting) Set(context.Context, blobref.Ref, []byte) error { return nil }
func (forgetting) Get(context.Context, blobref.Ref) ([]byte, error) {
	return nil, errors.New("it keeps nothing")
}

// growing is a log of as many turns as it is read of, with an answer of 64 KiB each.
func growing(turns int) conversation.Log {
	answer := make([]byte, 64<<10)
	for i := range answer {
		answer[i] = 'x'
	}
	line := func(i int) []byte {
		parent := "null"
		if i > 0 {
			parent = fmt.Sprintf(`"a%07d"`, i-1)
		} else {
			parent += "      "
		}
		return fmt.Appendf(nil, `{"type":"message","id":"u%07d","parentId":%s,"timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"user","content":"go","timestamp":1}}
{"type":"message","id":"a%07[1]d","parentId":"u%07[1]d","timestamp":"2026-01-02T03:04:05.000Z","message":{"role":"assistant","content":"%s","timestamp":1}}
`, i, parent, answer)
	}
	n := len(line(1))
	if len(line(0)) != n {
		panic("the first turn has another length")
	}
	return conversation.Log{ReaderAt: readerFunc(func(p []byte, off int64) int {
		at := int(off / int64(n))
		return copy(p, line(at)[int(off)%n:])
	}), Size: int64(turns) * int64(n)}
}

type readerFunc func(p []byte, off int64) int

func (f readerFunc) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		n += f(p[n:], off+int64(n))
	}
	return n, nil
}

// What a projector keeps is the tree of the session and the ids of its turns, not what
// was said.
func TestAProjectorDoesNotKeepTheLog(t *testing.T) {
	if testing.Short() {
		t.Skip("projects 128 MiB")
	}
	log := growing(2000)
	p := conversation.NewProjector(forgetting{}, conversation.ProjectorOptions{})
	if _, err := p.Project(t.Context(), log); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > 32<<20 {
		t.Errorf("%d MiB are kept of a log of %d MiB", m.HeapAlloc>>20, log.Size>>20)
	}
	runtime.KeepAlive(p)
}
