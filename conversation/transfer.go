package conversation

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// TransferField is the field of an exported ConversationStateStructure that carries its
// blobs, each an agent.v1 PreFetchedBlob (1 id, 2 value). Programs that read the file as
// the state that it is keep or pass over it as they do all unknown fields.
const TransferField protowire.Number = 100002

// Bounds of a file with a state, in bytes.
const (
	maxStateBytes = 256 << 20 // of the state itself
	maxBlobBytes  = 1 << 30   // of one blob
)

// Transfer is a state and all that it names, to go to another machine.
type Transfer struct {
	Root  blobref.Ref
	State []byte // a ConversationStateStructure
	// Blobs yields what the state names, each once, itself left out. A blob that is not
	// there is a *Hole and ends nothing; any other error does.
	Blobs iter.Seq2[Blob, error]
}

// Blob is a blob with its bytes.
type Blob struct {
	Ref  blobref.Ref
	Data []byte
}

// StateForTransfer returns the state root with its blobs, which are read when they are
// asked for, several at once.
func StateForTransfer(ctx context.Context, store blobstore.Store, root blobref.Ref, l Limits) (*Transfer, error) {
	state, err := store.Get(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("reading a conversation state: %w", &Hole{root, "state", err})
	}
	l = l.filled()
	return &Transfer{Root: root, State: state, Blobs: func(yield func(Blob, error) bool) {
		var refs []blobref.Ref
		told := map[blobref.Ref]bool{} // holes of the walk, which are not told twice
		hand := func() bool {
			defer func() { refs = refs[:0] }()
			data, errs := make([][]byte, len(refs)), make([]error, len(refs))
			parallel(l.Parallel, len(refs), func(i int) { data[i], errs[i] = store.Get(ctx, refs[i]) })
			for i, ref := range refs {
				switch {
				case errs[i] == nil:
					if !yield(Blob{ref, data[i]}, nil) {
						return false
					}
				case ctx.Err() != nil:
					yield(Blob{}, ctx.Err())
					return false
				case !told[ref]:
					if !yield(Blob{Ref: ref}, &Hole{ref, kindLeaf.String(), errs[i]}) {
						return false
					}
				}
			}
			return true
		}
		for ref, err := range Walk(ctx, store, root, l) {
			var h *Hole
			switch {
			case errors.As(err, &h):
				if told[ref] = true; !yield(Blob{Ref: ref}, h) {
					return
				}
			case err != nil:
				yield(Blob{}, err)
				return
			case ref != root:
				if refs = append(refs, ref); len(refs) == 4*l.Parallel && !hand() {
					return
				}
			}
		}
		hand()
	}}, nil
}

// Write writes the transfer as one file: the state, and each blob as a field of it.
// Holes are returned and do not end it. The file is a ConversationStateStructure to
// everybody who reads it as one.
func (t *Transfer) Write(w io.Writer) (holes []*Hole, err error) {
	out := bufio.NewWriterSize(w, 1<<20)
	if _, err := out.Write(t.State); err != nil {
		return nil, fmt.Errorf("exporting a conversation state: %w", err)
	}
	var head []byte
	for b, err := range t.Blobs {
		var h *Hole
		if errors.As(err, &h) {
			holes = append(holes, h)
			continue
		}
		if err != nil {
			return holes, fmt.Errorf("exporting a conversation state: %w", err)
		}
		head = appendBlobHead(head[:0], b)
		if _, err := out.Write(head); err != nil {
			return holes, fmt.Errorf("exporting a conversation state: %w", err)
		}
		if _, err := out.Write(b.Data); err != nil {
			return holes, fmt.Errorf("exporting a conversation state: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return holes, fmt.Errorf("exporting a conversation state: %w", err)
	}
	return holes, nil
}

// appendBlobHead appends all of a field with a blob but the bytes of that.
func appendBlobHead(dst []byte, b Blob) []byte {
	one := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), idOf(b.Ref))
	one = protowire.AppendVarint(protowire.AppendTag(one, 2, protowire.BytesType), uint64(len(b.Data)))
	dst = protowire.AppendTag(dst, TransferField, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(one)+len(b.Data)))
	return append(dst, one...)
}

// ReadTransfer reads a file with a state, hands its blobs to store as it meets them, and
// returns the state, which it stores last. It reads any ConversationStateStructure, with
// blobs in it or without, a legacy ConversationState, and the text forms of both. A blob
// whose id is not its hash is refused: nothing vouches for it. In memory are the state, and
// one blob; of a Verified store that is a blobstore.StreamSetter only blobs up to 4 MiB.
func ReadTransfer(ctx context.Context, r io.Reader, store blobstore.Store) (root blobref.Ref, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("importing a conversation state: %w", err)
		}
	}()
	in, err := binaryForm(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return root, err
	}
	return readFields(ctx, in, store)
}

// sniffBytes is how much of a file tells whether it is text: no message has so many digits
// at its beginning.
const sniffBytes = 64 << 10

// binaryForm returns what the text form stands for, and anything else as it is.
func binaryForm(in *bufio.Reader) (*bufio.Reader, error) {
	head, err := in.Peek(sniffBytes)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%w: there is nothing in it", ErrNotState)
	case len(head) > 0 && head[0] == '{':
		return nil, fmt.Errorf("%w: it looks like JSON, which has no blobs; a state is exported without it, too", ErrNotState)
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case !isText(head):
		return in, nil
	}
	plain := &textReader{in: in, what: "it is neither ~ with base64 nor hexadecimal"}
	if bytes.TrimSpace(head)[0] == '~' {
		plain.what = "behind its ~ there is no base64"
		plain.decoder = base64.NewDecoder(base64.RawStdEncoding, &digits{in: in, coded: true})
	} else {
		plain.decoder = hex.NewDecoder(&digits{in: in})
	}
	return bufio.NewReaderSize(plain, 1<<20), nil
}

// textReader reads the text form of a state.
type textReader struct {
	in      *bufio.Reader
	decoder io.Reader
	what    string // is wrong with what is none
}

func (t *textReader) Read(p []byte) (int, error) {
	n, err := t.decoder.Read(p)
	var bad64 base64.CorruptInputError
	var badHex hex.InvalidByteError
	if errors.As(err, &bad64) || errors.As(err, &badHex) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: %s", ErrNotState, t.what)
	}
	return n, err
}

// digits reads text without what stands around its digits, base64 as that of one alphabet.
type digits struct {
	in    *bufio.Reader
	coded bool // as base64, behind a "~"
	begun bool
	ended bool // only white space, and of base64 the padding, may follow
}

func (d *digits) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c, err := d.in.ReadByte()
		if err != nil {
			return n, err
		}
		space := c == ' ' || c == '\t' || c == '\r' || c == '\n'
		switch {
		case d.coded && !d.begun && c == '~':
			d.begun = true
			continue
		case space && (!d.begun || d.ended):
			continue
		case space && d.coded && c != ' ' && c != '\t':
			continue // base64 may have lines
		case space || d.coded && c == '=':
			d.ended = true
			continue
		case d.ended:
			c = 0 // no digit
		case d.coded && c == '-':
			c = '+'
		case d.coded && c == '_':
			c = '/'
		}
		d.begun = true
		p[n] = c
		n++
	}
	return n, nil
}

// readFields reads a message: the blobs in it, and then the state.
func readFields(ctx context.Context, in *bufio.Reader, store blobstore.Store) (root blobref.Ref, err error) {
	var state []byte
	for {
		h, err := nextHead(in)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return root, err
		}
		if h.number == TransferField && h.n > streamFrom {
			if done, err := streamBlob(ctx, in, store, h); err != nil {
				return root, err
			} else if done {
				continue
			}
		}
		f, err := h.rest(in)
		if err != nil {
			return root, err
		}
		if f.number != TransferField {
			if len(state)+len(f.raw) > maxStateBytes {
				return root, fmt.Errorf("the state has more than %d bytes: %w", maxStateBytes, ErrTooMuch)
			}
			state = append(state, f.raw...)
			continue
		}
		b, err := parseBlob(f.value)
		if err != nil {
			return root, err
		}
		if err := store.Set(ctx, b.Ref, b.Data); err != nil {
			return root, err
		}
	}
	return storeState(ctx, state, store)
}

// streamFrom is how long a field is that is not read into memory, in bytes.
const streamFrom = 4 << 20

// streamBlob stores the blob of a field as it is read, where the store takes that and verifies it; else nothing is read.
// The id stands before the value, as everybody writes them.
func streamBlob(ctx context.Context, in *bufio.Reader, store blobstore.Store, h fieldHead) (bool, error) {
	if blobstore.ModeOf(store) != blobstore.Verified {
		return false, nil
	}
	if _, ok := store.(blobstore.StreamSetter); !ok {
		return false, nil
	}
	const idField = 2 + 32
	head, err := in.Peek(idField + 2 + 10)
	if err != nil && len(head) < idField {
		return false, cutShort(err)
	}
	if head[0] != 1<<3|byte(protowire.BytesType) || head[1] != 32 || head[idField] != 2<<3|byte(protowire.BytesType) {
		return false, nil
	}
	size, n := protowire.ConsumeVarint(head[idField+1:])
	if n < 0 || uint64(idField+1+n)+size != h.n {
		return false, nil
	}
	ref := blobref.FromSum([32]byte(head[2:idField]))
	if _, err := in.Discard(idField + 1 + n); err != nil {
		return false, err
	}
	value := &cutReader{r: io.LimitReader(in, int64(size)), left: int64(size)}
	err = blobstore.SetStream(ctx, store, ref, value, int64(size))
	if err == nil {
		_, err = io.Copy(io.Discard, value) // of a blob that the store has already
	}
	return true, err
}

// cutReader reads what has to have a length.
type cutReader struct {
	r    io.Reader
	left int64
}

func (c *cutReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if errors.Is(err, io.EOF) && c.left > 0 {
		err = cutShort(err)
	}
	return n, err
}

// storeState stores a state, a legacy one with its parts as blobs.
func storeState(ctx context.Context, data []byte, store blobstore.Store) (root blobref.Ref, err error) {
	format, err := Detect(data)
	if err != nil {
		return root, err
	}
	w := newWriter(store)
	if format == Legacy {
		s, err := Parse(data, nil, Limits{})
		if err != nil {
			return root, err
		}
		for ref, part := range s.store.(*overlay).over {
			if got, err := w.put(ctx, part); err != nil || got != ref {
				return root, err
			}
		}
		data = s.Bytes()
	}
	if _, err := New(data, store, Limits{}); err != nil {
		return root, err
	}
	if err := w.sync(ctx); err != nil {
		return root, err
	}
	if root, err = w.put(ctx, data); err != nil {
		return root, err
	}
	return root, w.sync(ctx)
}

// fieldHead is the beginning of a field: all but the bytes of one that has a length.
type fieldHead struct {
	number protowire.Number
	typ    protowire.Type
	raw    []byte // as it was read
	n      uint64 // bytes that follow
}

// nextHead reads the beginning of the next field of a message from a stream.
func nextHead(in *bufio.Reader) (h fieldHead, err error) {
	varint := func() (uint64, error) {
		v := uint64(0)
		for i := range 10 {
			c, err := in.ReadByte()
			if err != nil {
				if i > 0 || len(h.raw) > 0 {
					err = cutShort(err)
				}
				return 0, err
			}
			h.raw = append(h.raw, c)
			v |= uint64(c&0x7f) << (7 * i)
			if c < 0x80 {
				return v, nil
			}
		}
		return 0, fmt.Errorf("a number of more than 10 bytes: %w", ErrNotState)
	}
	tag, err := varint()
	if err != nil {
		return h, err
	}
	if h.number, h.typ = protowire.DecodeTag(tag); h.number < protowire.MinValidNumber {
		return h, fmt.Errorf("field %d: %w", h.number, ErrNotState)
	}
	switch h.typ {
	case protowire.VarintType:
		_, err = varint()
	case protowire.Fixed32Type:
		h.n = 4
	case protowire.Fixed64Type:
		h.n = 8
	case protowire.BytesType:
		h.n, err = varint()
	default:
		err = fmt.Errorf("field %d is a group: %w", h.number, ErrNotState)
	}
	if err == nil && h.n > maxBlobBytes+128 {
		err = fmt.Errorf("field %d has %d bytes: %w", h.number, h.n, ErrTooMuch)
	}
	return h, err
}

// rest reads the rest of a field. What a length claims is believed as far as it is there.
func (h fieldHead) rest(in *bufio.Reader) (field, error) {
	raw, head := h.raw, len(h.raw)
	for left := int(h.n); left > 0; {
		k := min(left, 1<<20)
		at := len(raw)
		raw = slices.Grow(raw, k)[:at+k]
		if _, err := io.ReadFull(in, raw[at:]); err != nil {
			return field{}, cutShort(err)
		}
		left -= k
	}
	f := field{number: h.number, raw: raw}
	if h.typ == protowire.BytesType {
		f.value = raw[head:]
	}
	return f, nil
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the file is cut short: %w", ErrNotState)
	}
	return err
}

func parseBlob(data []byte) (b Blob, err error) {
	list, err := split(data)
	if err != nil {
		return b, err
	}
	var id []byte
	for _, f := range list {
		switch f.number {
		case 1:
			id = f.value
		case 2:
			b.Data = f.value
		}
	}
	if len(id) != 32 {
		return b, fmt.Errorf("a blob with an id of %d bytes: %w", len(id), ErrNotState)
	}
	b.Ref = blobref.FromSum([32]byte(id))
	if !b.Ref.Verify(b.Data) {
		return b, fmt.Errorf("blob %s: %w", b.Ref.Hex(), blobstore.ErrMismatch)
	}
	return b, nil
}

// JSON is a state in protobuf's canonical JSON, on one line. Ids are base64 there, and
// fields that are not known here, the sidecar's among them, are not in it.
func JSON(state []byte) ([]byte, error) {
	s, err := New(state, nil, Limits{})
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(s.Message)
	if err != nil {
		return nil, fmt.Errorf("writing a conversation state as JSON: %w", err)
	}
	return compact(text), nil
}
