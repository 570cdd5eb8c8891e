package kvhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/internal/envelope"
)

// code is a status of gRPC; its numbers are gRPC's.
type code int

const (
	ok                code = 0
	canceled          code = 1
	unknown           code = 2
	invalidArgument   code = 3
	deadlineExceeded  code = 4
	permissionDenied  code = 7
	resourceExhausted code = 8
	unimplemented     code = 12
	internal          code = 13
	unavailable       code = 14
	unauthenticated   code = 16
)

// codeNames are Connect's.
var codeNames = [...]string{
	"ok", "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
	"permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
	"unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
}

func (c code) String() string {
	if c < 0 || int(c) >= len(codeNames) {
		return fmt.Sprintf("code_%d", int(c))
	}
	return codeNames[c]
}

// codeNamed returns unknown for names that are not Connect's.
func codeNamed(name string) code {
	for c, n := range codeNames {
		if n == name && c != 0 {
			return code(c)
		}
	}
	return unknown
}

// status is how a stream ended, other than well.
type status struct {
	code    code
	message string
}

func (s *status) Error() string { return s.code.String() + ": " + s.message }

// Is says which of them no repetition mends.
func (s *status) Is(target error) bool {
	switch s.code {
	case unauthenticated, permissionDenied, unimplemented:
		return target == kv.ErrRefused
	case deadlineExceeded:
		return target == context.DeadlineExceeded
	}
	return false
}

// statusOf says how a stream ended to the other side.
func statusOf(err error) *status {
	var s *status
	switch {
	case err == nil:
		return &status{code: ok}
	case errors.As(err, &s):
		return s
	}
	s = &status{code: internal, message: err.Error()}
	for _, known := range []struct {
		err  error
		code code
	}{
		{context.DeadlineExceeded, deadlineExceeded},
		{errShutdown, unavailable},
		{context.Canceled, canceled},
		{kv.ErrStalled, resourceExhausted},
		{kv.ErrProtocol, invalidArgument},
		{envelope.ErrFlags, invalidArgument},
		{io.ErrUnexpectedEOF, invalidArgument},
	} {
		if errors.Is(err, known.err) {
			s.code = known.code
			break
		}
	}
	return s
}

// endMessage is the last message of a Connect stream.
type endMessage struct {
	Error *endError `json:"error,omitempty"`
}

type endError struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

// appendEnd appends the last message of a Connect stream in its envelope.
func appendEnd(buf []byte, s *status) []byte {
	var end endMessage
	if s.code != ok {
		end.Error = &endError{Code: s.code.String(), Message: s.message}
	}
	text, err := json.Marshal(end)
	if err != nil {
		text = []byte(`{"error":{"code":"internal"}}`) // not reached: two strings
	}
	return append(envelope.AppendHeader(buf, envelope.EndStream, len(text)), text...)
}

// maxEnd bounds the last message of a Connect stream, in bytes.
const maxEnd = 64 << 10

// parseEnd returns io.EOF for a stream that ended well.
func parseEnd(text []byte) error {
	if len(text) > maxEnd {
		return fmt.Errorf("%w: the last message of a stream has %d bytes", kv.ErrProtocol, len(text))
	}
	var end endMessage
	if err := json.Unmarshal(text, &end); err != nil {
		return fmt.Errorf("%w: the last message of a stream: %w", kv.ErrProtocol, err)
	}
	if end.Error == nil {
		return io.EOF
	}
	return &status{code: codeNamed(end.Error.Code), message: strings.ToValidUTF8(end.Error.Message, "\ufffd")}
}

// httpStatus is what a status of HTTP other than 200 means (gRPC's "HTTP to gRPC status
// code mapping", which is Connect's too).
func httpStatus(resp *http.Response) *status {
	s := &status{code: unknown, message: "HTTP status " + resp.Status}
	switch resp.StatusCode {
	case http.StatusBadRequest:
		s.code = internal
	case http.StatusUnauthorized:
		s.code = unauthenticated
	case http.StatusForbidden:
		s.code = permissionDenied
	case http.StatusNotFound, http.StatusUnsupportedMediaType, http.StatusHTTPVersionNotSupported, http.StatusMethodNotAllowed:
		s.code = unimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		s.code = unavailable
	}
	return s
}

// percentEncode makes text fit for the trailer grpc-message.
func percentEncode(text string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// percentDecode leaves what is not encoded rightly as it is.
func percentDecode(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '%' && i+2 < len(text) {
			hi, lo := unhex(text[i+1]), unhex(text[i+2])
			if hi|lo < 16 {
				b.WriteByte(hi<<4 | lo)
				i += 2
				continue
			}
		}
		b.WriteByte(text[i])
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

func unhex(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}
