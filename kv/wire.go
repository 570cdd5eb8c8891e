package kv

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// The messages of agent.v1 that go over the stream, by their numbers:
//
//	KvServerMessage  1 id; 2 get_blob_args {1 blob_id}; 3 set_blob_args {1 blob_id; 2 blob_data};
//	                 4 span_context {1 trace_id; 2 span_id; 3 trace_flags; 4 trace_state}
//	KvClientMessage  1 id; 2 get_blob_result {1 blob_data; 2 error}; 3 set_blob_result {1 error}
//	Error            1 message; 100001 code (ours, unknown to other peers, which pass over it)
//
// They are read and written by hand: one message a blob, none of them kept, and at
// 100,000 a second what the generated code allocates is most of what there is to do.
const (
	fieldID   protowire.Number = 1
	fieldGet  protowire.Number = 2
	fieldSet  protowire.Number = 3
	fieldSpan protowire.Number = 4

	fieldBlobID   protowire.Number = 1 // of both arguments
	fieldBlobData protowire.Number = 2 // of set_blob_args

	fieldResultData protowire.Number = 1 // of get_blob_result
	fieldGetError   protowire.Number = 2 // of get_blob_result
	fieldSetError   protowire.Number = 1 // of set_blob_result

	fieldErrorMessage protowire.Number = 1
	fieldErrorCode    protowire.Number = 100001
)

// kind is the case of a message.
type kind uint8

const (
	unknown kind = iota // none, or one that is not known here
	get
	set
)

func (k kind) field() protowire.Number {
	if k == get {
		return fieldGet
	}
	return fieldSet
}

// errMalformed means that the bytes are no message.
var errMalformed = errors.New("not a message of agent.v1")

// request is a KvServerMessage.
type request struct {
	id     uint32
	kind   kind
	blobID []byte
	data   []byte // of a set
	span   blobstore.SpanContext
}

// answer is a KvClientMessage.
type answer struct {
	id    uint32
	kind  kind
	data  []byte // of a get
	found bool   // data is there; it may be empty
	err   *PeerError
}

// fields calls each with every field of a message that has bytes or a number, until it
// returns an error. Groups and fixed numbers are passed over.
func fields(msg []byte, each func(num protowire.Number, value uint64, data []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		msg = msg[n:]
		var err error
		switch typ {
		case protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(msg); n >= 0 {
				err = each(num, v, nil)
			}
		case protowire.BytesType:
			var b []byte
			if b, n = protowire.ConsumeBytes(msg); n >= 0 {
				err = each(num, 0, b[:len(b):len(b)])
			}
		default:
			n = protowire.ConsumeFieldValue(num, typ, msg)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		if err != nil {
			return err
		}
		msg = msg[n:]
	}
	return nil
}

// parseRequest reads a KvServerMessage. Its slices are parts of msg.
func parseRequest(msg []byte) (request, error) {
	var r request
	err := fields(msg, func(num protowire.Number, value uint64, data []byte) error {
		switch {
		case num == fieldID && data == nil:
			r.id = uint32(value)
		case data == nil:
		case num == fieldGet:
			r.begin(get)
			return fields(data, func(num protowire.Number, _ uint64, data []byte) error {
				if num == fieldBlobID && data != nil {
					r.blobID = data
				}
				return nil
			})
		case num == fieldSet:
			r.begin(set)
			return fields(data, func(num protowire.Number, _ uint64, data []byte) error {
				if num == fieldBlobID && data != nil {
					r.blobID = data
				}
				if num == fieldBlobData && data != nil {
					r.data = data
				}
				return nil
			})
		case num == fieldSpan:
			return parseSpan(&r.span, data)
		}
		return nil
	})
	return r, err
}

// begin takes a case of the oneof: the last one counts, and one that comes twice is
// merged, as protobuf has it.
func (r *request) begin(k kind) {
	if r.kind != k {
		r.kind, r.blobID, r.data = k, nil, nil
	}
}

func parseSpan(span *blobstore.SpanContext, msg []byte) error {
	return fields(msg, func(num protowire.Number, value uint64, data []byte) error {
		if data != nil && num <= 4 && !utf8.Valid(data) {
			return fmt.Errorf("%w: text of a span is not UTF-8", errMalformed)
		}
		switch {
		case num == 3 && data == nil:
			span.Flags = uint32(value)
		case data == nil:
		case num == 1:
			span.TraceID = string(data)
		case num == 2:
			span.SpanID = string(data)
		case num == 4:
			span.State = string(data)
		}
		return nil
	})
}

// parseAnswer reads a KvClientMessage. Its data is a part of msg.
func parseAnswer(msg []byte) (answer, error) {
	var a answer
	err := fields(msg, func(num protowire.Number, value uint64, data []byte) error {
		switch {
		case num == fieldID && data == nil:
			a.id = uint32(value)
		case data == nil:
		case num == fieldGet:
			a.begin(get)
			return fields(data, func(num protowire.Number, _ uint64, data []byte) error {
				switch {
				case data == nil:
				case num == fieldResultData:
					a.data, a.found = data, true
				case num == fieldGetError:
					return a.parseError(data)
				}
				return nil
			})
		case num == fieldSet:
			a.begin(set)
			return fields(data, func(num protowire.Number, _ uint64, data []byte) error {
				if num == fieldSetError && data != nil {
					return a.parseError(data)
				}
				return nil
			})
		}
		return nil
	})
	return a, err
}

func (a *answer) begin(k kind) {
	if a.kind != k {
		*a = answer{id: a.id, kind: k}
	}
}

func (a *answer) parseError(msg []byte) error {
	if a.err == nil {
		a.err = new(PeerError)
	}
	return fields(msg, func(num protowire.Number, value uint64, data []byte) error {
		switch {
		case num == fieldErrorMessage && data != nil:
			a.err.Message = errorText(string(data))
		case num == fieldErrorCode && data == nil:
			a.err.code = code(value)
		}
		return nil
	})
}

// maxErrorText bounds what one side tells the other about a failure, in bytes.
const maxErrorText = 1 << 10

// errorText makes text fit for a protobuf string and for a log.
func errorText(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) > maxErrorText {
		cut := maxErrorText
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "..."
	}
	return text
}

// requestSize returns the length of what appendRequest appends.
func requestSize(id uint32, k kind, data []byte, span *blobstore.SpanContext) int {
	n := idSize(id) + bytesSize(fieldSet, argsSize(k, data))
	if span != nil {
		n += bytesSize(fieldSpan, spanSize(span))
	}
	return n
}

func argsSize(k kind, data []byte) int {
	n := bytesSize(fieldBlobID, blobIDLen)
	if k == set && len(data) > 0 {
		n += bytesSize(fieldBlobData, len(data))
	}
	return n
}

const blobIDLen = blobref.HexLen / 2

// appendRequest appends a KvServerMessage. Fields that have their default are left
// out, id 0 too, as every protobuf library does.
func appendRequest(buf []byte, id uint32, k kind, ref blobref.Ref, data []byte, span *blobstore.SpanContext) []byte {
	buf = appendID(buf, id)
	buf = appendLen(buf, k.field(), argsSize(k, data))
	buf = appendLen(buf, fieldBlobID, blobIDLen)
	sum := ref.Sum()
	buf = append(buf, sum[:]...)
	if k == set && len(data) > 0 {
		buf = appendLen(buf, fieldBlobData, len(data))
		buf = append(buf, data...)
	}
	if span != nil {
		buf = appendLen(buf, fieldSpan, spanSize(span))
		buf = appendText(buf, 1, span.TraceID)
		buf = appendText(buf, 2, span.SpanID)
		buf = protowire.AppendTag(buf, 3, protowire.VarintType)
		buf = protowire.AppendVarint(buf, uint64(span.Flags))
		buf = appendText(buf, 4, span.State)
	}
	return buf
}

func spanSize(span *blobstore.SpanContext) int {
	return textSize(1, span.TraceID) + textSize(2, span.SpanID) +
		protowire.SizeTag(3) + protowire.SizeVarint(uint64(span.Flags)) + textSize(4, span.State)
}

// size returns the length of what append appends.
func (a *answer) size() int {
	return idSize(a.id) + bytesSize(fieldSet, a.resultSize())
}

func (a *answer) resultSize() int {
	n := 0
	if a.kind == get && a.found {
		n += bytesSize(fieldResultData, len(a.data))
	}
	if a.err != nil {
		n += bytesSize(fieldGetError, a.err.size())
	}
	return n
}

// append appends the KvClientMessage.
func (a *answer) append(buf []byte) []byte {
	buf = appendID(buf, a.id)
	buf = appendLen(buf, a.kind.field(), a.resultSize())
	if a.kind == get && a.found {
		buf = appendLen(buf, fieldResultData, len(a.data))
		buf = append(buf, a.data...)
	}
	if a.err != nil {
		field := fieldGetError
		if a.kind == set {
			field = fieldSetError
		}
		buf = appendLen(buf, field, a.err.size())
		buf = appendText(buf, fieldErrorMessage, a.err.Message)
		if a.err.code != 0 {
			buf = protowire.AppendTag(buf, fieldErrorCode, protowire.VarintType)
			buf = protowire.AppendVarint(buf, uint64(a.err.code))
		}
	}
	return buf
}

func (e *PeerError) size() int {
	n := textSize(fieldErrorMessage, e.Message)
	if e.code != 0 {
		n += protowire.SizeTag(fieldErrorCode) + protowire.SizeVarint(uint64(e.code))
	}
	return n
}

func idSize(id uint32) int {
	if id == 0 {
		return 0
	}
	return 1 + protowire.SizeVarint(uint64(id))
}

func appendID(buf []byte, id uint32) []byte {
	if id == 0 {
		return buf
	}
	return protowire.AppendVarint(append(buf, byte(fieldID)<<3), uint64(id))
}

func bytesSize(num protowire.Number, n int) int {
	return protowire.SizeTag(num) + (bits.Len32(uint32(n)|1)+6)/7 + n
}

func appendLen(buf []byte, num protowire.Number, n int) []byte {
	buf = protowire.AppendTag(buf, num, protowire.BytesType)
	return protowire.AppendVarint(buf, uint64(n))
}

func textSize(num protowire.Number, text string) int {
	if text == "" {
		return 0
	}
	return bytesSize(num, len(text))
}

func appendText(buf []byte, num protowire.Number, text string) []byte {
	if text == "" {
		return buf
	}
	return append(appendLen(buf, num, len(text)), text...)
}

// parseHead reads the id and the case of a request, or an answer, that is cut off
// behind its head. ok is false when it does not tell them.
func parseHead(head []byte) (r request, ok bool) {
	for len(head) > 0 {
		num, typ, n := protowire.ConsumeTag(head)
		if n < 0 {
			return r, false
		}
		head = head[n:]
		switch {
		case num == fieldID && typ == protowire.VarintType:
			var id uint64
			if id, n = protowire.ConsumeVarint(head); n < 0 {
				return r, false
			}
			r.id = uint32(id)
		case (num == fieldGet || num == fieldSet) && typ == protowire.BytesType:
			// Ids are written first; a message without one has id 0.
			r.kind = set
			if num == fieldGet {
				r.kind = get
			}
			return r, true
		default:
			if n = protowire.ConsumeFieldValue(num, typ, head); n < 0 {
				return r, false
			}
		}
		head = head[n:]
	}
	return r, false
}
