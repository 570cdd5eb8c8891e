package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// Prefixes of the keys of pointers.
const (
	checkpointPrefix = "agentKv:checkpoint:"
	bubblePrefix     = "agentKv:bubbleCheckpoint:"
	historyPrefix    = "agentrun:history:"
)

// maxPointer is the longest value that is looked at as one: 64 digits, with room.
const maxPointer = 1024

// Pointer says where the state of a conversation is.
type Pointer struct {
	Conversation string
	Bubble       string      // the message whose state it is; "" for the latest state
	Ref          blobref.Ref // the blob; zero for none
	Time         time.Time   // when it was written, to a millisecond; zero where that is not known
}

// key is the one place where a name of a pointer becomes a key.
func (p Pointer) key() (string, error) {
	if err := checkID("conversation", p.Conversation); err != nil {
		return "", err
	}
	if p.Bubble == "" {
		return checkpointPrefix + p.Conversation, nil
	}
	if err := checkID("bubble", p.Bubble); err != nil {
		return "", err
	}
	return bubblePrefix + p.Conversation + ":" + p.Bubble, nil
}

func (p Pointer) name() string {
	if p.Bubble == "" {
		return fmt.Sprintf("the checkpoint of conversation %q", p.Conversation)
	}
	return fmt.Sprintf("the checkpoint of conversation %q at bubble %q", p.Conversation, p.Bubble)
}

// Checkpoint returns the latest state of a conversation. Where there is none, the
// error is ErrNoRecord.
func (s *Store) Checkpoint(ctx context.Context, conversation string) (Pointer, error) {
	return s.pointer(ctx, Pointer{Conversation: conversation})
}

// BubbleCheckpoint returns the state of a conversation at a message. Where there is
// none, the error is ErrNoRecord.
func (s *Store) BubbleCheckpoint(ctx context.Context, conversation, bubble string) (Pointer, error) {
	if err := checkID("bubble", bubble); err != nil {
		return Pointer{}, fmt.Errorf("reading a checkpoint of %s: %w", s.path, err)
	}
	return s.pointer(ctx, Pointer{Conversation: conversation, Bubble: bubble})
}

func (s *Store) pointer(ctx context.Context, p Pointer) (Pointer, error) {
	key, err := p.key()
	if err == nil {
		var r record
		if r, err = s.readRecord(ctx, key, maxPointer); err == nil {
			p.Time = r.time
			p.Ref, err = parsePointer(r.value)
		}
	}
	if err != nil {
		return Pointer{}, fmt.Errorf("reading %s in %s: %w", p.name(), s.path, err)
	}
	return p, nil
}

// ErrConflict means that a pointer is not what the caller took it for. Nothing was
// changed. The error is a *ConflictError.
var ErrConflict = errors.New("the pointer was changed by somebody else")

// ConflictError says what a pointer is instead.
type ConflictError struct {
	Is Pointer // its Ref is zero where there is none
}

func (e *ConflictError) Error() string {
	if e.Is.Ref.IsZero() {
		return fmt.Sprintf("%v: there is none", ErrConflict)
	}
	return fmt.Sprintf("%v: it is %s", ErrConflict, e.Is.Ref)
}

// Unwrap returns ErrConflict.
func (e *ConflictError) Unwrap() error { return ErrConflict }

// Change is a change of a pointer from Old to New, where the zero reference means none.
type Change struct {
	Conversation string
	Bubble       string // "" for the latest state
	Old, New     blobref.Ref
}

// SetCheckpoint changes the latest state of a conversation from old to new, where the
// zero reference means none. If it is not old, the error is ErrConflict.
func (s *Store) SetCheckpoint(ctx context.Context, conversation string, old, new blobref.Ref) error {
	return s.SetCheckpoints(ctx, Change{Conversation: conversation, Old: old, New: new})
}

// SetBubbleCheckpoint is SetCheckpoint for the state at a message.
func (s *Store) SetBubbleCheckpoint(ctx context.Context, conversation, bubble string, old, new blobref.Ref) error {
	if err := checkID("bubble", bubble); err != nil {
		return fmt.Errorf("storing a checkpoint in %s: %w", s.path, err)
	}
	return s.SetCheckpoints(ctx, Change{Conversation: conversation, Bubble: bubble, Old: old, New: new})
}

// SetCheckpoints makes changes in one transaction, whoever writes at the same time: all
// of them, or, with an error, none. Each is kept in the History of its conversation.
// Blobs that were stored before are in the file before the pointers are.
func (s *Store) SetCheckpoints(ctx context.Context, changes ...Change) error {
	keys := make([]string, len(changes))
	for i, change := range changes {
		var err error
		if keys[i], err = change.pointer().key(); err != nil {
			return fmt.Errorf("storing a checkpoint in %s: %w", s.path, err)
		}
	}
	now := time.Now()
	err := s.write(ctx, 0, func(c *conn) error {
		for i, change := range changes {
			if err := s.change(c, keys[i], change, now); err != nil {
				return fmt.Errorf("storing %s in %s: %w", change.pointer().name(), s.path, err)
			}
		}
		return nil
	})
	switch {
	case err == nil || len(changes) == 0:
		return err
	case errors.Is(err, ErrConflict):
		return err // says which
	}
	return fmt.Errorf("storing %s in %s: %w", changes[0].pointer().name(), s.path, err)
}

func (c Change) pointer() Pointer { return Pointer{Conversation: c.Conversation, Bubble: c.Bubble} }

// change is one change in the transaction that is going on.
func (s *Store) change(c *conn, key string, change Change, now time.Time) error {
	is := change.pointer()
	r, err := findRecord(context.Background(), c, true, key, maxPointer)
	if err == nil {
		is.Time = r.time
		is.Ref, err = parsePointer(r.value)
	}
	if err != nil && !errors.Is(err, ErrNoRecord) {
		return err
	}
	switch {
	case is.Ref != change.Old:
		return &ConflictError{Is: is}
	case is.Ref == change.New:
		return s.settle(c)
	case change.New.IsZero():
		err = deleteRecord(c, key)
	default:
		err = writeRecord(c, key, change.New.Hex(), now)
	}
	if err != nil {
		return err
	}
	return remember(c, change, now)
}

// remember writes one line of the history of a conversation: the id, the time in
// milliseconds, a checksum, and the bubble.
func remember(c *conn, change Change, now time.Time) error {
	prefix := historyPrefix + change.Conversation + ":"
	var last uint64
	err := c.query(context.Background(), func(v []driver.Value) (err error) {
		last, err = strconv.ParseUint(textOf(v[0])[len(prefix):], 16, 64)
		return err
	}, "SELECT key FROM cursorDiskKV WHERE key > ? AND key < ? ORDER BY key DESC LIMIT 1", prefix, prefixEnd(prefix))
	if err != nil {
		return fmt.Errorf("%w: the history of the conversation: %w", blobstore.ErrCorrupt, err)
	}
	key := fmt.Sprintf("%s%016x", prefix, last+1)
	at := now.UnixMilli()
	said := change.New.Hex() + " " + change.Bubble
	_, err = c.exec(context.Background(), insertValue, key, fmt.Sprintf("%d %s %s", at, checksum(key, []byte(said), at), said))
	return err
}

// RemoveCheckpoint removes a pointer, the latest state with the bubble "", whatever it
// is: one that is damaged cannot be changed otherwise. Where there is none it does
// nothing. History still knows what it was.
func (s *Store) RemoveCheckpoint(ctx context.Context, conversation, bubble string) error {
	p := Pointer{Conversation: conversation, Bubble: bubble}
	key, err := p.key()
	if err == nil {
		now := time.Now()
		err = s.write(ctx, 0, func(c *conn) error {
			if _, err := findRecord(context.Background(), c, false, key, maxPointer); errors.Is(err, ErrNoRecord) {
				return nil
			}
			if err := deleteRecord(c, key); err != nil {
				return err
			}
			return remember(c, Change{Conversation: conversation, Bubble: bubble}, now)
		})
	}
	if err != nil {
		return fmt.Errorf("removing %s from %s: %w", p.name(), s.path, err)
	}
	return nil
}

// History yields what the pointers of a conversation were set to, oldest first, the
// present values included; a zero Ref is a removal. It knows what was set here: for
// another program's file it yields nothing. An error about one line has its
// Conversation, and the history goes on; one with a zero Pointer ends it.
func (s *Store) History(ctx context.Context, conversation string) iter.Seq2[Pointer, error] {
	return func(yield func(Pointer, error) bool) {
		fail := func(p Pointer, err error) bool {
			return yield(p, fmt.Errorf("reading the history of conversation %q in %s: %w", conversation, s.path, err))
		}
		if err := checkID("conversation", conversation); err != nil {
			fail(Pointer{}, err)
			return
		}
		for row, err := range s.rows(ctx, historyPrefix+conversation+":", historyColumns) {
			if err != nil {
				fail(Pointer{}, err)
				return
			}
			p, err := parseHistory(textOf(row[0]), textOf(row[1]))
			p.Conversation = conversation
			if err != nil {
				if !fail(p, err) {
					return
				}
				continue
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

// historyColumns are a line of the history, unless it is too long to be one.
const historyColumns = ", CASE WHEN octet_length(value) <= 1024 THEN value END"

func parseHistory(key, line string) (Pointer, error) {
	parts := strings.SplitN(line, " ", 4)
	if len(parts) != 4 {
		return Pointer{}, fmt.Errorf("%w: a line of %d bytes is none of ours", blobstore.ErrCorrupt, len(line))
	}
	at, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || parts[1] != checksum(key, []byte(parts[2]+" "+parts[3]), at) {
		return Pointer{}, fmt.Errorf("%w: the checksum of a line is another", blobstore.ErrCorrupt)
	}
	p := Pointer{Bubble: parts[3], Time: time.UnixMilli(at)}
	sum, ok := fromHex([]byte(parts[2]))
	if !ok || len(sum) != len(p.Ref.Sum()) {
		return Pointer{}, fmt.Errorf("%w: a line has no id", blobstore.ErrCorrupt)
	}
	p.Ref = blobref.FromSum([32]byte(sum))
	return p, nil
}

// Checkpoints yields all pointers, first the latest states, then those at messages, each in the
// order of their names. An error about one pointer has its Conversation, and the
// listing goes on; one with a zero Pointer ends it.
func (s *Store) Checkpoints(ctx context.Context) iter.Seq2[Pointer, error] {
	return func(yield func(Pointer, error) bool) {
		for _, prefix := range []string{checkpointPrefix, bubblePrefix} {
			for row, err := range s.rows(ctx, prefix, fmt.Sprintf(recordColumns, maxPointer)) {
				if err != nil {
					yield(Pointer{}, fmt.Errorf("listing the checkpoints of %s: %w", s.path, err))
					return
				}
				p, err := s.listed(prefix, row)
				if errors.Is(err, ErrNoRecord) {
					continue
				}
				if err != nil {
					err = fmt.Errorf("listing the checkpoints of %s: %q: %w", s.path, textOf(row[0]), err)
				}
				if !yield(p, err) {
					return
				}
			}
		}
	}
}

// listed reads a row of the listing.
func (s *Store) listed(prefix string, row []driver.Value) (Pointer, error) {
	name := textOf(row[0])[len(prefix):]
	p := Pointer{Conversation: name}
	if prefix == bubblePrefix {
		p.Conversation, p.Bubble, _ = strings.Cut(name, ":")
		if err := checkID("bubble", p.Bubble); err != nil {
			return Pointer{Conversation: name}, err
		}
	}
	if err := checkID("conversation", p.Conversation); err != nil {
		return Pointer{Conversation: name}, err
	}
	r, err := parseRecord(row, s.made(), maxPointer)
	if err != nil {
		return p, err
	}
	p.Time = r.time
	p.Ref, err = parsePointer(r.value)
	return p, err
}

// made reports whether the file is ours.
func (s *Store) made() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.src != nil && s.src.made
}
