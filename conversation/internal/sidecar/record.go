package sidecar

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agentrun/agentrun/blobref"
)

// Bounds of the format, frozen.
const (
	FanOut     = 64        // records of a node
	MaxLevel   = 8         // 64^9 items
	ChunkBytes = 256 << 10 // of a chunk
	Version    = 1

	// maxNode is the largest node that is read, in bytes: citations and spans are
	// not bounded by the fan-out.
	maxNode = 16 << 20
)

// ErrFormat means that bytes are no sidecar, or not the one that their parent says.
var ErrFormat = errors.New("it is not a sidecar of a conversation state")

// Span is a stretch of the body, in bytes.
type Span struct{ From, Len uint64 }

// Record is an item of a tree, or a node of it as its parent sees it.
type Record struct {
	ID     blobref.Ref
	Weight uint64 // bytes of chunks; turns weigh 1
	Count  uint64 // items, 1 for an item
	Cites  []blobref.Ref
	Spans  []Span
}

// Tree names a tree. The zero Tree is empty.
type Tree struct {
	ID     blobref.Ref
	Weight uint64
	Count  uint64
	Level  int
}

// Empty reports whether there is nothing in the tree.
func (t Tree) Empty() bool { return t.Count == 0 }

func appendID(b []byte, field protowire.Number, id blobref.Ref) []byte {
	sum := id.Sum()
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), sum[:])
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func (r Record) append(b []byte) []byte {
	b = appendID(b, 1, r.ID)
	b = appendUint(b, 2, r.Weight)
	b = appendUint(b, 3, r.Count)
	for _, id := range r.Cites {
		b = appendID(b, 4, id)
	}
	if len(r.Spans) > 0 {
		var packed []byte
		for _, s := range r.Spans {
			packed = protowire.AppendVarint(protowire.AppendVarint(packed, s.From), s.Len)
		}
		b = protowire.AppendBytes(protowire.AppendTag(b, 5, protowire.BytesType), packed)
	}
	return b
}

func (t Tree) append(b []byte) []byte {
	if t.Empty() {
		return b
	}
	b = appendID(b, 1, t.ID)
	b = appendUint(b, 2, t.Weight)
	b = appendUint(b, 3, t.Count)
	return appendUint(b, 4, uint64(t.Level))
}

// fields calls each for the fields of a message that are varints or bytes. Others are
// skipped: a later version may have them.
func fields(b []byte, each func(n protowire.Number, v uint64, data []byte) error) error {
	for len(b) > 0 {
		n, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return ErrFormat
		}
		b = b[size:]
		var v uint64
		var data []byte
		switch typ {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			data, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, typ, b)
		}
		if size < 0 {
			return ErrFormat
		}
		if typ == protowire.VarintType || typ == protowire.BytesType {
			if err := each(n, v, data); err != nil {
				return err
			}
		}
		b = b[size:]
	}
	return nil
}

func parseID(data []byte) (blobref.Ref, error) {
	if len(data) != sha256.Size {
		return blobref.Ref{}, fmt.Errorf("an id of %d bytes: %w", len(data), ErrFormat)
	}
	return blobref.FromSum([sha256.Size]byte(data)), nil
}

func parseRecord(b []byte) (r Record, err error) {
	seen := false
	err = fields(b, func(n protowire.Number, v uint64, data []byte) (err error) {
		switch n {
		case 1:
			r.ID, err = parseID(data)
			seen = true
		case 2:
			r.Weight = v
		case 3:
			r.Count = v
		case 4:
			var id blobref.Ref
			id, err = parseID(data)
			r.Cites = append(r.Cites, id)
		case 5:
			r.Spans, err = parseSpans(data)
		}
		return err
	})
	if err == nil && (!seen || r.Count == 0 || r.Weight < r.Count) {
		// Nothing weighs nothing, so the weight of a tree bounds how much it can be.
		err = fmt.Errorf("a record without an id, items or weight: %w", ErrFormat)
	}
	return r, err
}

func parseSpans(b []byte) (spans []Span, err error) {
	for len(b) > 0 {
		var v [2]uint64
		for i := range v {
			n := 0
			if v[i], n = protowire.ConsumeVarint(b); n < 0 {
				return nil, fmt.Errorf("a span: %w", ErrFormat)
			}
			b = b[n:]
		}
		if v[0] > math.MaxInt64 || v[1] > math.MaxInt64-v[0] {
			return nil, fmt.Errorf("a span beyond any file: %w", ErrFormat)
		}
		spans = append(spans, Span{v[0], v[1]})
	}
	return spans, nil
}

func parseTree(b []byte) (t Tree, err error) {
	err = fields(b, func(n protowire.Number, v uint64, data []byte) (err error) {
		switch n {
		case 1:
			t.ID, err = parseID(data)
		case 2:
			t.Weight = v
		case 3:
			t.Count = v
		case 4:
			if v > MaxLevel {
				return fmt.Errorf("a tree of %d levels: %w", v, ErrFormat)
			}
			t.Level = int(v)
		}
		return err
	})
	return t, err
}

// appendNode writes a node.
func appendNode(b []byte, level int, records []Record) []byte {
	b = appendUint(b, 1, uint64(level))
	var buf []byte
	for _, r := range records {
		buf = r.append(buf[:0])
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), buf)
	}
	return b
}

// parseNode reads a node and holds it against what its parent says of it.
func parseNode(b []byte, t Tree) (records []Record, err error) {
	if len(b) > maxNode {
		return nil, fmt.Errorf("a node of %d bytes: %w", len(b), ErrFormat)
	}
	level := uint64(0)
	err = fields(b, func(n protowire.Number, v uint64, data []byte) error {
		switch n {
		case 1:
			level = v
		case 2:
			if len(records) == FanOut {
				return fmt.Errorf("a node of more than %d records: %w", FanOut, ErrFormat)
			}
			r, err := parseRecord(data)
			records = append(records, r)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if level != uint64(t.Level) {
		return nil, fmt.Errorf("a node of level %d where one of %d belongs: %w", level, t.Level, ErrFormat)
	}
	var weight, count uint64
	for _, r := range records {
		if level == 0 && r.Count != 1 {
			return nil, fmt.Errorf("an item that is several: %w", ErrFormat)
		}
		if weight+r.Weight < weight || count+r.Count < count {
			return nil, fmt.Errorf("sums that overflow: %w", ErrFormat)
		}
		weight, count = weight+r.Weight, count+r.Count
	}
	if weight != t.Weight || count != t.Count {
		return nil, fmt.Errorf("a node with a sum that is not what its parent says: %w", ErrFormat)
	}
	return records, nil
}
