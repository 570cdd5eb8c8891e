package kv

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agentrun/agentrun/kv/internal/envelope"
)

// agentMessage says where the messages of this package are in a message of
// agent.v1.AgentService/Run, which is one oneof.
type agentMessage struct {
	kv     protowire.Number
	others []protowire.Number // the other known cases: the last one of a message counts
}

var (
	agentClientMessage = agentMessage{kv: 3, others: []protowire.Number{1, 2, 4, 5, 6, 7, 8}}
	agentServerMessage = agentMessage{kv: 4, others: []protowire.Number{1, 2, 3, 5, 7}}
)

// AgentStream is the part of a stream of agent.v1.AgentService/Run that is about
// blobs. Everything else that comes is handed to a function, or ignored where there is
// none, cases that are not known here included.
type AgentStream struct {
	run     Stream
	in, out agentMessage
	others  func(message []byte) error

	mu  sync.Mutex
	buf []byte // guarded by mu
}

var _ Stream = (*AgentStream)(nil)

// InAgentClient is for the side that dialled: run brings AgentServerMessage and takes
// AgentClientMessage. A server of a model asks this side for blobs: give the stream to
// a Controlled.
func InAgentClient(run Stream, others func(message []byte) error) *AgentStream {
	return &AgentStream{run: run, in: agentServerMessage, out: agentClientMessage, others: others}
}

// InAgentServer is for the side that was dialled: run brings AgentClientMessage and
// takes AgentServerMessage. Give the stream to a Remote.
func InAgentServer(run Stream, others func(message []byte) error) *AgentStream {
	return &AgentStream{run: run, in: agentClientMessage, out: agentServerMessage, others: others}
}

// Recv returns the next message about blobs. Others go to the function, which must not
// keep them; its error ends the stream. A message that is no protobuf goes there too.
func (s *AgentStream) Recv() ([]byte, error) {
	for {
		message, err := s.run.Recv()
		if tooLarge, ok := err.(*TooLargeError); ok { //nolint:errorlint // it comes unwrapped
			return nil, s.in.tooLarge(tooLarge)
		}
		if err != nil {
			return nil, err
		}
		if inner, ok := s.in.find(message); ok {
			return inner, nil
		}
		if s.others != nil {
			if err := s.others(message); err != nil {
				return nil, err
			}
		}
	}
}

// find returns the message about blobs, unless the message is about something else.
func (m agentMessage) find(message []byte) (inner []byte, found bool) {
	err := fields(message, func(num protowire.Number, _ uint64, data []byte) error {
		switch {
		case data == nil:
		case num == m.kv && found:
			// The same case twice is merged, and the encoding of a merged message is
			// that of both, one behind the other.
			inner = append(inner[:len(inner):len(inner)], data...)
		case num == m.kv:
			inner, found = data, true
		case m.isOther(num):
			inner, found = nil, false
		}
		return nil
	})
	return inner, found && err == nil
}

func (m agentMessage) isOther(num protowire.Number) bool {
	for _, other := range m.others {
		if num == other {
			return true
		}
	}
	return false
}

// tooLarge unwraps the head of a message that was passed by.
func (m agentMessage) tooLarge(outer *TooLargeError) *TooLargeError {
	inner := &TooLargeError{Size: outer.Size, Limit: outer.Limit}
	num, typ, n := protowire.ConsumeTag(outer.Head)
	if n < 0 || num != m.kv || typ != protowire.BytesType {
		return inner
	}
	if _, size := protowire.ConsumeVarint(outer.Head[n:]); size > 0 {
		inner.Head = outer.Head[n+size:]
	}
	return inner
}

// Send sends messages about blobs.
func (s *AgentStream) Send(batch []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf := s.buf[:0]
	for message := range envelope.Split(batch) {
		buf = envelope.AppendHeader(buf, 0, bytesSize(s.out.kv, len(message)))
		buf = append(appendLen(buf, s.out.kv, len(message)), message...)
	}
	s.buf = buf
	if cap(buf) > keptBuffer {
		s.buf = nil
	}
	return s.run.Send(buf)
}

// SendOther sends a message of the stream that is not about blobs, complete and
// encoded. It may be called at any time.
func (s *AgentStream) SendOther(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.run.Send(AppendMessage(nil, message))
}

// Close ends the whole stream.
func (s *AgentStream) Close() error { return s.run.Close() }
