package tracecontext_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/internal/tracecontext"
)

// within is an observer all of whose operations are part of one span.
type within struct{ span blobstore.SpanContext }

func (within) Began(ctx context.Context, _ blobstore.Op) context.Context   { return ctx }
func (within) Ended(context.Context, blobstore.Op, time.Duration, error)   {}
func (within) Counted(context.Context, string, string, string)             {}
func (w within) SpanContext(context.Context) (blobstore.SpanContext, bool) { return w.span, true }

func (within) WithRemoteSpan(c context.Context, _ blobstore.SpanContext) context.Context { return c }

const (
	trace = "0af7651916cd43dd8448eb211c80319c"
	span  = "b7ad6b7169203331"
)

func TestASpanComesOutOfHeadersAsItWentIn(t *testing.T) {
	for name, want := range map[string]blobstore.SpanContext{
		"sampled":          {TraceID: trace, SpanID: span, Flags: 1},
		"not sampled":      {TraceID: trace, SpanID: span},
		"with a state":     {TraceID: trace, SpanID: span, Flags: 1, State: "a=1,b=2"},
		"with later flags": {TraceID: trace, SpanID: span, Flags: 0xff},
	} {
		h := make(http.Header)
		tracecontext.Set(t.Context(), within{want}, h)
		if got, ok := tracecontext.Get(h); !ok || got != want {
			t.Errorf("%s: %+v, %v from %v", name, got, ok, h)
		}
	}
}

func TestWhatIsNoSpanIsNotSent(t *testing.T) {
	for name, bad := range map[string]blobstore.SpanContext{
		"nothing":         {},
		"a trace of zero": {TraceID: strings.Repeat("0", 32), SpanID: span},
		"a short trace":   {TraceID: trace[1:], SpanID: span},
		"upper case":      {TraceID: strings.ToUpper(trace), SpanID: span},
		"a line end":      {TraceID: trace, SpanID: span[2:] + "\r\n"},
	} {
		h := make(http.Header)
		tracecontext.Set(t.Context(), within{bad}, h)
		if len(h) > 0 {
			t.Errorf("%s: %v", name, h)
		}
	}
	h := make(http.Header)
	tracecontext.Set(t.Context(), within{blobstore.SpanContext{TraceID: trace, SpanID: span, State: "a=1\r\nX: y"}}, h)
	if len(h) != 1 {
		t.Errorf("a state that is none was sent: %v", h)
	}
	tracecontext.Set(t.Context(), nil, h)
}

func TestASpanThatIsNotOfTheFormIsNone(t *testing.T) {
	for text, want := range map[string]bool{
		"00-" + trace + "-" + span + "-01":     true,
		"cc-" + trace + "-" + span + "-01-new": true,
		"00-" + trace + "-" + span + "-01-new": false,
		"ff-" + trace + "-" + span + "-01":     false,
		"00-" + trace + "-" + span:             false,
		"00-" + trace + "-" + span + "-1":      false,
		"00-" + trace + "-" + span + "-+1":     false,
		"":                                     false,
	} {
		if got, ok := tracecontext.Get(http.Header{"Traceparent": {text}}); ok != want {
			t.Errorf("%q: %+v, %v", text, got, ok)
		}
	}
	one := "00-" + trace + "-" + span + "-01"
	if _, ok := tracecontext.Get(http.Header{"Traceparent": {one, one}}); ok {
		t.Error("one of two is taken")
	}
}

func FuzzGet(f *testing.F) {
	f.Add("00-"+trace+"-"+span+"-01", "a=1")
	f.Fuzz(func(t *testing.T, parent, state string) {
		got, ok := tracecontext.Get(http.Header{"Traceparent": {parent}, "Tracestate": {state}})
		if !ok {
			return
		}
		h := make(http.Header)
		tracecontext.Set(t.Context(), within{got}, h)
		if again, ok := tracecontext.Get(h); !ok || again != got {
			t.Errorf("%q, %q: %+v becomes %+v", parent, state, got, again)
		}
	})
}
