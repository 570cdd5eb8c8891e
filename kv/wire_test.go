package kv

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// The generated code is the judge of what is written by hand.

func TestRequestsAreWhatTheGeneratedCodeReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint32().Draw(t, "id")
		k := rapid.SampledFrom([]kind{get, set}).Draw(t, "kind")
		ref := blobref.FromSum([32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "ref")))
		data := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")
		var span *blobstore.SpanContext
		if rapid.Bool().Draw(t, "traced") {
			span = &blobstore.SpanContext{
				TraceID: rapid.StringN(0, 32, -1).Draw(t, "trace"), SpanID: rapid.String().Draw(t, "span"),
				Flags: rapid.Uint32().Draw(t, "flags"), State: rapid.String().Draw(t, "state"),
			}
		}
		encoded := appendRequest([]byte("before"), id, k, ref, data, span)[len("before"):]
		if want := requestSize(id, k, data, span); len(encoded) != want {
			t.Fatalf("%d bytes, announced as %d", len(encoded), want)
		}
		var got agentv1.KvServerMessage
		if err := proto.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		sum := ref.Sum()
		want := &agentv1.KvServerMessage{Id: id}
		if k == get {
			want.Message = &agentv1.KvServerMessage_GetBlobArgs{GetBlobArgs: &agentv1.GetBlobArgs{BlobId: sum[:]}}
		} else {
			want.Message = &agentv1.KvServerMessage_SetBlobArgs{SetBlobArgs: &agentv1.SetBlobArgs{BlobId: sum[:], BlobData: data}}
		}
		if span != nil {
			want.SpanContext = &agentv1.SpanContext{TraceId: span.TraceID, SpanId: span.SpanID, TraceFlags: &span.Flags}
			if span.State != "" {
				want.SpanContext.TraceState = &span.State
			}
		}
		if !proto.Equal(&got, want) {
			t.Fatalf("%v, want %v", &got, want)
		}
		wantRequest(t, encoded, &got)
	})
}

// wantRequest parses a message and compares it with what the generated code read.
func wantRequest(t interface{ Fatalf(string, ...any) }, encoded []byte, want *agentv1.KvServerMessage) {
	r, err := parseRequest(encoded)
	if err != nil {
		t.Fatalf("%x: %v", encoded, err)
	}
	var k kind
	var id, data []byte
	switch m := want.GetMessage().(type) {
	case *agentv1.KvServerMessage_GetBlobArgs:
		k, id = get, m.GetBlobArgs.GetBlobId()
	case *agentv1.KvServerMessage_SetBlobArgs:
		k, id, data = set, m.SetBlobArgs.GetBlobId(), m.SetBlobArgs.GetBlobData()
	}
	span := want.GetSpanContext()
	wantSpan := blobstore.SpanContext{TraceID: span.GetTraceId(), SpanID: span.GetSpanId(), Flags: span.GetTraceFlags(), State: span.GetTraceState()}
	if r.id != want.GetId() || r.kind != k || !bytes.Equal(r.blobID, id) || !bytes.Equal(r.data, data) || r.span != wantSpan {
		t.Fatalf("%x: %+v, want %v", encoded, r, want)
	}
}

func TestAnswersAreWhatTheGeneratedCodeReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := answer{id: rapid.Uint32().Draw(t, "id"), kind: rapid.SampledFrom([]kind{get, set}).Draw(t, "kind")}
		if a.kind == get && rapid.Bool().Draw(t, "found") {
			a.found, a.data = true, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data")
		}
		if rapid.Bool().Draw(t, "failed") {
			a.err = &PeerError{Message: rapid.String().Draw(t, "message"), code: code(rapid.Uint64Range(0, 20).Draw(t, "code"))}
		}
		encoded := a.append([]byte("before"))[len("before"):]
		if len(encoded) != a.size() {
			t.Fatalf("%d bytes, announced as %d", len(encoded), a.size())
		}
		var got agentv1.KvClientMessage
		if err := proto.Unmarshal(encoded, &got); err != nil {
			t.Fatal(err)
		}
		wantAnswer(t, encoded, &got)
		back, err := parseAnswer(encoded)
		if err != nil || back.id != a.id || back.kind != a.kind || back.found != a.found || !bytes.Equal(back.data, a.data) || (back.err == nil) != (a.err == nil) {
			t.Fatalf("%+v came back as %+v, %v", a, back, err)
		}
		if a.err != nil && *back.err != (PeerError{Message: errorText(a.err.Message), code: a.err.code}) {
			t.Fatalf("%+v came back as %+v", a.err, back.err)
		}
	})
}

func wantAnswer(t interface{ Fatalf(string, ...any) }, encoded []byte, want *agentv1.KvClientMessage) {
	a, err := parseAnswer(encoded)
	if err != nil {
		t.Fatalf("%x: %v", encoded, err)
	}
	var k kind
	var data []byte
	var failure *agentv1.Error
	switch m := want.GetMessage().(type) {
	case *agentv1.KvClientMessage_GetBlobResult:
		k, data, failure = get, m.GetBlobResult.BlobData, m.GetBlobResult.GetError()
	case *agentv1.KvClientMessage_SetBlobResult:
		k, failure = set, m.SetBlobResult.GetError()
	}
	if a.id != want.GetId() || a.kind != k || a.found != (data != nil) || !bytes.Equal(a.data, data) || (a.err != nil) != (failure != nil) {
		t.Fatalf("%x: %+v, want %v", encoded, a, want)
	}
	if a.err != nil && a.err.Message != errorText(failure.GetMessage()) {
		t.Fatalf("%x: %+v, want %v", encoded, a.err, failure)
	}
}

// Whatever the generated code can read is read alike, and nothing makes the reader
// fail otherwise than by an error.
func FuzzRequest(f *testing.F) {
	f.Add(appendRequest(nil, 7, get, blobref.Of(nil), nil, nil))
	f.Add(appendRequest(nil, 0, set, blobref.Of([]byte("x")), []byte("x"), &blobstore.SpanContext{TraceID: "1", Flags: 1}))
	f.Add([]byte{0x12, 0x03, 0x0a, 0x01, 'x', 0x1a, 0x00, 0x12, 0x00}) // get, set, get again
	f.Add([]byte{0x12, 0x03, 0x0a, 0x01, 'x', 0x12, 0x00})             // get twice: merged
	f.Fuzz(func(t *testing.T, msg []byte) {
		before := bytes.Clone(msg)
		var want agentv1.KvServerMessage
		if proto.Unmarshal(msg, &want) == nil {
			wantRequest(t, msg, &want)
		} else {
			parseRequest(msg) //nolint:errcheck // not to panic
		}
		for cut := range min(len(msg), 70) {
			parseHead(msg[:cut])
		}
		if !bytes.Equal(before, msg) {
			t.Fatal("the message was changed")
		}
	})
}

func FuzzAnswer(f *testing.F) {
	found := answer{id: 3, kind: get, found: true, data: []byte("data")}
	failed := answer{kind: set, err: &PeerError{Message: "no", code: 2}}
	f.Add(found.append(nil))
	f.Add(failed.append(nil))
	f.Add([]byte{0x12, 0x04, 0x12, 0x02, 0x0a, 0x00, 0x1a, 0x00})
	f.Fuzz(func(t *testing.T, msg []byte) {
		var want agentv1.KvClientMessage
		if proto.Unmarshal(msg, &want) == nil {
			wantAnswer(t, msg, &want)
		} else {
			parseAnswer(msg) //nolint:errcheck // not to panic
		}
	})
}

// FuzzAgent unwraps what an agent's stream brings as the generated code would.
func FuzzAgent(f *testing.F) {
	inner := appendRequest(nil, 7, get, blobref.Of(nil), nil, nil)
	f.Add(append(appendLen(nil, 4, len(inner)), inner...))
	f.Add(append(append(appendLen(nil, 4, len(inner)), inner...), 0x0a, 0x00))
	f.Fuzz(func(t *testing.T, msg []byte) {
		agentServerMessage.tooLarge(&TooLargeError{Head: msg})
		inner, found := agentServerMessage.find(msg)
		var want agentv1.AgentServerMessage
		if proto.Unmarshal(msg, &want) != nil {
			return
		}
		if (want.GetKvServerMessage() != nil) != found {
			t.Fatalf("%x: found %v, want %v", msg, found, &want)
		}
		if found {
			wantRequest(t, inner, want.GetKvServerMessage())
		}
	})
}

func TestWhatAPeerSaysAboutAFailureIsBounded(t *testing.T) {
	long := errorText(string(bytes.Repeat([]byte("ä\xff"), 2000)))
	if len(long) > maxErrorText+3 || !bytes.HasSuffix([]byte(long), []byte("...")) {
		t.Errorf("%d bytes: %.20q", len(long), long)
	}
}
