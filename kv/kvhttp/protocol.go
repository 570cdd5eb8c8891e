package kvhttp

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/internal/envelope"
)

// Protocol is how messages are wrapped.
type Protocol uint8

const (
	// Connect is the Connect protocol, for streams: https://connectrpc.com/docs/protocol.
	Connect Protocol = iota

	// GRPC is gRPC over HTTP2.
	GRPC
)

func (p Protocol) String() string {
	if p == GRPC {
		return "gRPC"
	}
	return "Connect"
}

const (
	typeConnect   = "application/connect+proto"
	typeGRPC      = "application/grpc"
	typeGRPCProto = "application/grpc+proto"
)

// protocolOf reads a content type.
func protocolOf(contentType string) (Protocol, bool) {
	if media, _, err := mime.ParseMediaType(contentType); err == nil {
		contentType = media
	}
	switch contentType {
	case typeConnect:
		return Connect, true
	case typeGRPC, typeGRPCProto:
		return GRPC, true
	}
	return 0, false
}

// headers are the names in which the protocols differ.
type headers struct{ encoding, acceptEncoding, timeout string }

func (p Protocol) headers() headers {
	if p == GRPC {
		return headers{"Grpc-Encoding", "Grpc-Accept-Encoding", "Grpc-Timeout"}
	}
	return headers{"Connect-Content-Encoding", "Connect-Accept-Encoding", "Connect-Timeout-Ms"}
}

// timeout reads how long the client will wait; 0 when it does not say.
func (p Protocol) timeout(h http.Header) (time.Duration, error) {
	text := h.Get(p.headers().timeout)
	if text == "" {
		return 0, nil
	}
	digits, unit, most := text, time.Millisecond, 10
	if p == GRPC {
		units := map[byte]time.Duration{
			'H': time.Hour, 'M': time.Minute, 'S': time.Second,
			'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
		}
		digits, unit, most = text[:len(text)-1], units[text[len(text)-1]], 8
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || unit == 0 || len(digits) > most || strings.HasPrefix(digits, "+") {
		return 0, &status{code: invalidArgument, message: fmt.Sprintf("%s: %.20q is no timeout", p.headers().timeout, text)}
	}
	// A timeout beyond what a Duration holds is as good as none.
	if n > uint64((1<<63-1)/unit) {
		return 0, nil
	}
	return max(time.Duration(n)*unit, 1), nil
}

// inbound reads the messages of one direction of a stream.
type inbound struct {
	protocol Protocol
	gzip     bool // messages may be compressed
	limit    int
	r        *envelope.Reader

	unzip gzip.Reader
	plain bytes.Buffer
}

func newInbound(p Protocol, body io.Reader, gzip bool, limit int) *inbound {
	return &inbound{protocol: p, gzip: gzip, limit: limit, r: envelope.NewReader(body, limit)}
}

// next returns the next message and whether it is the one that ends a Connect stream.
func (in *inbound) next() (message []byte, end bool, err error) {
	flags, message, err := in.r.Next()
	if err != nil {
		return nil, false, err
	}
	end = flags&envelope.EndStream != 0
	if end && in.protocol != Connect {
		return nil, false, fmt.Errorf("%w: flags %#x mean nothing in %s", kv.ErrProtocol, flags, in.protocol)
	}
	if flags&envelope.Compressed != 0 {
		message, err = in.decompress(message)
	}
	return message, end, err
}

func (in *inbound) decompress(message []byte) ([]byte, error) {
	if !in.gzip {
		return nil, &status{code: internal, message: "a message is compressed, but no encoding was agreed on"}
	}
	if err := in.unzip.Reset(bytes.NewReader(message)); err != nil {
		return nil, fmt.Errorf("%w: a compressed message: %w", kv.ErrProtocol, err)
	}
	in.plain.Reset()
	n, err := in.plain.ReadFrom(io.LimitReader(&in.unzip, int64(in.limit)+1))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: a compressed message: %w", kv.ErrProtocol, err)
	}
	if n > int64(in.limit) {
		plain := in.plain.Bytes()
		return nil, &kv.TooLargeError{Size: uint32(min(n, 1<<32-1)), Limit: in.limit, Head: bytes.Clone(plain[:min(64, len(plain))])}
	}
	return in.plain.Bytes(), nil
}
