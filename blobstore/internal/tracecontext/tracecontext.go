// Package tracecontext names the span that a request is part of in its headers, in the
// form of W3C Trace Context, https://www.w3.org/TR/trace-context/: traceparent and
// tracestate.
package tracecontext

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/blobstore"
)

const (
	parentHeader = "Traceparent"
	stateHeader  = "Tracestate"

	maxState = 4 << 10 // bytes; the standard asks for 512 at least
)

// Set names the span of ctx in the headers of a request, where the observer is a
// blobstore.Propagator and there is one.
func Set(ctx context.Context, observer blobstore.Observer, h http.Header) {
	p, ok := observer.(blobstore.Propagator)
	if !ok {
		return
	}
	span, ok := p.SpanContext(ctx)
	if !ok || !isID(span.TraceID, 32) || !isID(span.SpanID, 16) {
		return
	}
	h.Set(parentHeader, fmt.Sprintf("00-%s-%s-%02x", span.TraceID, span.SpanID, span.Flags&0xff))
	if isState(span.State) {
		h.Set(stateHeader, span.State)
	}
}

// Get reads which span a request names; false where it names none in the form of the
// standard. What it says is a stranger's.
func Get(h http.Header) (blobstore.SpanContext, bool) {
	if len(h.Values(parentHeader)) != 1 {
		return blobstore.SpanContext{}, false
	}
	fields := strings.Split(h.Get(parentHeader), "-")
	// Later versions may have more fields behind these four.
	if len(fields) < 4 || len(fields[0]) != 2 || fields[0] == "ff" || !isHex(fields[0]) || fields[0] == "00" && len(fields) > 4 ||
		!isID(fields[1], 32) || !isID(fields[2], 16) || len(fields[3]) != 2 || !isHex(fields[3]) {
		return blobstore.SpanContext{}, false
	}
	flags, err := strconv.ParseUint(fields[3], 16, 8)
	if err != nil {
		return blobstore.SpanContext{}, false
	}
	span := blobstore.SpanContext{TraceID: fields[1], SpanID: fields[2], Flags: uint32(flags)}
	if state := strings.Join(h.Values(stateHeader), ","); isState(state) {
		span.State = state
	}
	return span, true
}

// isID reports whether text is an id of n digits; one of zeros names nothing.
func isID(text string, n int) bool {
	return len(text) == n && isHex(text) && strings.Trim(text, "0") != ""
}

func isHex(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// isState reports whether a state can stand in a header.
func isState(text string) bool {
	return text != "" && len(text) <= maxState && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
