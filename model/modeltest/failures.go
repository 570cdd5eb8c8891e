package modeltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/script"
	"github.com/agentrun/agentrun/session/entry"
)

func testCancel(t *testing.T, o Options) {
	b := open(t, o, say(text("One", "Two", "Three"), script.Step{Hang: true}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	after := -1
	var last error
	for e, err := range b.Model.Stream(ctx, ask()) {
		if after >= 0 {
			after++
		}
		if _, ok := e.(model.TextDelta); ok && after < 0 {
			cancel()
			after = 0
		}
		last = err
	}
	var failed *model.Error
	if after != 1 || !errors.As(last, &failed) || failed.Kind != model.KindCancelled || !errors.Is(last, context.Canceled) {
		t.Fatalf("%d events followed, the last error is %v", after, last)
	}
	checkError(t, failed)
	if p := failed.Partial; p == nil || p.StopReason != entry.StopAborted || !strings.HasPrefix(p.Content.Text(), "One") {
		t.Errorf("what came before is %+v", failed.Partial)
	}
}

func testHang(t *testing.T, o Options) {
	b := open(t, o, say(script.Step{Hang: true}))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var last error
	for _, err := range b.Model.Stream(ctx, ask()) {
		last = err
	}
	if model.KindOf(last) != model.KindCancelled || !errors.Is(last, context.DeadlineExceeded) {
		t.Errorf("the error is %v", last)
	}
}

func testLeave(t *testing.T, o Options) {
	b := open(t, o, say(text("One", "Two"), script.Step{Hang: true}))
	for _, err := range b.Model.Stream(t.Context(), ask()) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	// That nothing is left is checked when the backend is closed.
}

func testErrors(t *testing.T, o Options) {
	for _, f := range []script.Failure{
		{Kind: model.KindAuth, Status: 401},
		{Kind: model.KindRateLimit, Status: 429, RetryAfter: script.Duration(2 * time.Second)},
		{Kind: model.KindOverloaded, Status: 529, RetryAfter: script.Duration(30 * time.Second)},
		{Kind: model.KindOverloaded, Status: 503},
		{Kind: model.KindServer, Status: 500},
		{Kind: model.KindServer, Status: 502},
		{Kind: model.KindOverflow, Status: 400},
		{Kind: model.KindInvalid, Status: 400},
		{Kind: model.KindInvalid, Status: 404},
	} {
		t.Run(fmt.Sprintf("%s %d", f.Kind, f.Status), func(t *testing.T) {
			b := open(t, o, say(script.Step{Error: &f}))
			err := fails(t, b.Model, ask(), f.Kind)
			if err.Status != f.Status || err.RetryAfter != time.Duration(f.RetryAfter) || err.Partial != nil {
				t.Errorf("status %d, wait %v, before %v", err.Status, err.RetryAfter, err.Partial)
			}
			temporary := f.Status == 429 || f.Status >= 500
			if err.Temporary() != temporary {
				t.Errorf("it is temporary: %v", err.Temporary())
			}
		})
	}
}

func testErrorsWithin(t *testing.T, o Options) {
	for _, kind := range []model.Kind{model.KindOverloaded, model.KindServer, model.KindRateLimit} {
		b := open(t, o, say(text("It is"), script.Step{Error: &script.Failure{Kind: kind}}))
		err := fails(t, b.Model, ask(), kind)
		if err.Partial == nil || err.Partial.Content.Text() != "It is" || err.Partial.ErrorMessage == "" {
			t.Errorf("%s: what came before is %+v", kind, err.Partial)
		}
	}
}

func testRefused(t *testing.T, o Options) {
	b := open(t, o, say(text("I"), script.Step{Error: &script.Failure{Kind: model.KindRefused}}))
	if err := fails(t, b.Model, ask(), model.KindRefused); err.Temporary() {
		t.Error("it is temporary")
	}
}

func testCut(t *testing.T, o Options) {
	call := script.Step{Call: "read", ID: "c1", RawArgs: script.Pieces{`{"path":"`}}
	b := open(t, o, say(text("It is"), call, script.Step{Cut: true}))
	err := fails(t, b.Model, ask(), model.KindCut)
	if !err.Temporary() || err.Partial == nil || err.Partial.Content.Text() != "It is" || err.Partial.StopReason != entry.StopError {
		t.Fatalf("what came before is %+v", err.Partial)
	}
	if calls := err.Partial.Content.ToolCalls(); len(calls) == 1 {
		if _, invalid := model.InvalidArguments(calls[0]); !invalid {
			t.Errorf("half a call passes for a whole one: %s", calls[0].Arguments)
		}
	}
}

func testGarbage(t *testing.T, o Options) {
	bad := script.Step{Error: &script.Failure{Kind: model.KindServer, Message: Garbage}}
	b := open(t, o, say(text("It is"), bad))
	if err := fails(t, b.Model, ask(), model.KindServer); err.Partial == nil || err.Partial.Content.Text() != "It is" {
		t.Errorf("what came before is %+v", err.Partial)
	}
}

func testLong(t *testing.T, o Options) {
	const size, pieces = 10 << 20, 1024
	piece := strings.Repeat("0123456789abcde\n", size/pieces/16)
	b := open(t, o, say(script.Step{Text: script.Pieces{piece}, Repeat: pieces}))
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, most, seen := heap(), uint64(0), 0
	for e, err := range b.Model.Stream(t.Context(), ask()) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case model.TextDelta:
			if seen += len(e.Text); seen > 0 && seen%(size/8) < len(piece) {
				most = max(most, heap())
			}
		case model.Stop:
			if n := len(e.Message.Content.Text()); n != size {
				t.Errorf("%d bytes came as %d", size, n)
			}
			most = max(most, heap())
		}
	}
	// The answer, the room that it grows into, the last event of a protocol that repeats it, and
	// all of this once more for the other side, which is in this process.
	if used := int64(most) - int64(before); used > 10*size {
		t.Errorf("%d MiB were in use for an answer of %d", used>>20, size>>20)
	}
}
