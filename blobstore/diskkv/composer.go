package diskkv

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/agentrun/agentrun/blobstore"
)

const (
	composerPrefix = "composerData:"
	stateMember    = "conversationState"
)

// ComposerState returns the bytes of the ConversationStateStructure that is part of the
// JSON of a conversation. Where there is no such conversation, or no state in it, the
// error is ErrNoRecord; where a program wrote an empty state, the result is empty.
func (s *Store) ComposerState(ctx context.Context, conversation string) ([]byte, error) {
	state, err := s.composerState(ctx, conversation)
	if err != nil {
		return nil, fmt.Errorf("reading the state of conversation %q in %s: %w", conversation, s.path, err)
	}
	return state, nil
}

func (s *Store) composerState(ctx context.Context, conversation string) ([]byte, error) {
	if err := checkID("conversation", conversation); err != nil {
		return nil, err
	}
	r, err := s.readRecord(ctx, composerPrefix+conversation, s.opts.MaxBytes)
	if err != nil {
		return nil, err
	}
	doc, _, err := bytesOf(r.value)
	if err != nil {
		return nil, err
	}
	at, err := findState(doc)
	if err != nil {
		return nil, err
	}
	return decodeState(doc[at.from:at.to])
}

// SetComposerState puts a state into the JSON of a conversation, of which nothing else
// is changed, or makes one that has nothing else.
func (s *Store) SetComposerState(ctx context.Context, conversation string, state []byte) error {
	err := checkID("conversation", conversation)
	if err == nil {
		now := time.Now()
		err = s.write(ctx, 2*len(state), func(c *conn) error {
			doc := []byte("{}")
			r, err := findRecord(context.Background(), c, true, composerPrefix+conversation, s.opts.MaxBytes)
			switch {
			case errors.Is(err, ErrNoRecord):
			case err != nil:
				return err
			default:
				if doc, _, err = bytesOf(r.value); err != nil {
					return err
				}
			}
			if doc, err = putState(doc, state); err != nil {
				return err
			}
			if int64(len(doc)) > s.opts.MaxBytes {
				return fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, len(doc), s.opts.MaxBytes)
			}
			return writeRecord(c, composerPrefix+conversation, string(doc), now)
		})
	}
	if err != nil {
		return fmt.Errorf("storing the state of conversation %q in %s: %w", conversation, s.path, err)
	}
	return nil
}

// Composers yields the ids of the conversations that have JSON, in their order. Keys
// that cannot be asked for are passed over.
func (s *Store) Composers(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for row, err := range s.rows(ctx, composerPrefix, "") {
			if err != nil {
				yield("", fmt.Errorf("listing the conversations of %s: %w", s.path, err))
				return
			}
			id := textOf(row[0])[len(composerPrefix):]
			if checkID("conversation", id) == nil && !yield(id, nil) {
				return
			}
		}
	}
}

// span is a stretch of a document. It is empty where there is no state; from is then
// where one can be put in.
type span struct{ from, to int }

// findState finds the value of conversationState in a JSON object. Of several it is
// the last, as JavaScript has it, and only in this spelling.
func findState(doc []byte) (span, error) {
	broken := func(err error) (span, error) {
		if err == nil || err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return span{}, fmt.Errorf("%w: its JSON: %w", blobstore.ErrCorrupt, err)
	}
	dec := json.NewDecoder(bytes.NewReader(doc))
	open, err := dec.Token()
	if err != nil {
		return broken(err)
	}
	if open != json.Delim('{') {
		return broken(errors.New("it is not an object"))
	}
	found := span{from: int(dec.InputOffset())}
	found.to = found.from
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return broken(err)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return broken(err)
		}
		if name == stateMember {
			to := int(dec.InputOffset())
			found = span{from: to - len(value), to: to}
		}
	}
	if _, err := dec.Token(); err != nil {
		return broken(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return broken(errors.New("there is more behind it"))
	}
	return found, nil
}

// decodeState reads the value of conversationState: "~" and base64, or hexadecimal.
func decodeState(value []byte) ([]byte, error) {
	if len(value) == 0 || string(value) == "null" {
		return nil, ErrNoRecord
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return nil, fmt.Errorf("%w: its conversationState is no text", blobstore.ErrCorrupt)
	}
	switch {
	case text == "":
		return nil, ErrNoRecord
	case text == "~":
		return []byte{}, nil
	case text[0] == '~':
		if state, ok := fromBase64([]byte(text[1:])); ok {
			return state, nil
		}
	default:
		if state, ok := fromHex([]byte(text)); ok {
			return state, nil
		}
	}
	return nil, fmt.Errorf("%w: its conversationState is neither ~ and base64 nor hexadecimal", blobstore.ErrCorrupt)
}

// putState returns the document with another state.
func putState(doc, state []byte) ([]byte, error) {
	at, err := findState(doc)
	if err != nil {
		return nil, err
	}
	text := `"~` + base64.StdEncoding.EncodeToString(state) + `"`
	if at.from == at.to {
		text = `"` + stateMember + `":` + text
		if rest := bytes.TrimLeft(doc[at.from:], " \t\r\n"); rest[0] != '}' {
			text += ","
		}
	}
	return slices.Concat(doc[:at.from], []byte(text), doc[at.to:]), nil
}
