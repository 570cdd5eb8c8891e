package conversation

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is one field of a message, as it stands in its bytes.
type field struct {
	number protowire.Number
	raw    []byte // with its tag
	value  []byte // of a length-delimited one, else nil
}

// split takes a message apart into its fields, in their order.
func split(b []byte) (list []field, err error) {
	for len(b) > 0 {
		n, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, fmt.Errorf("%w: field %d of it is cut short", ErrNotState, len(list)+1)
		}
		size := protowire.ConsumeFieldValue(n, typ, b[tag:])
		if size < 0 {
			return nil, fmt.Errorf("%w: field %d of it is cut short", ErrNotState, len(list)+1)
		}
		f := field{number: n, raw: b[: tag+size : tag+size]}
		if typ == protowire.BytesType {
			f.value, _ = protowire.ConsumeBytes(b[tag:])
		}
		list = append(list, f)
		b = b[tag+size:]
	}
	return list, nil
}

// inOrder appends the fields of a message and more of them to dst, by their numbers.
func inOrder(dst, message []byte, more map[protowire.Number][]byte) ([]byte, error) {
	list, err := split(message)
	if err != nil {
		return nil, err
	}
	for _, n := range slices.Sorted(maps.Keys(more)) {
		list = append(list, field{number: n, raw: more[n]})
	}
	slices.SortStableFunc(list, byNumber)
	for _, f := range list {
		dst = append(dst, f.raw...)
	}
	return dst, nil
}

func byNumber(a, b field) int { return int(a.number) - int(b.number) }

// digest is the SHA-256 of a state without its sidecar, by the numbers of its fields:
// a program that reads a state and writes it again may put them in another order.
func digest(list []field) (sum [sha256.Size]byte) {
	list = slices.DeleteFunc(slices.Clone(list), func(f field) bool { return f.number == SidecarField })
	slices.SortStableFunc(list, byNumber)
	h := sha256.New()
	for _, f := range list {
		h.Write(f.raw)
	}
	h.Sum(sum[:0])
	return sum
}

// sidecarID is the id in the last sidecar field, nil for none.
func sidecarID(list []field) []byte {
	for _, f := range slices.Backward(list) {
		if f.number == SidecarField && len(f.value) == sha256.Size {
			return f.value
		}
	}
	return nil
}
