// Package pointers keeps, for each conversation, which blob its latest state is, and which its state at a message was
// (a bubble). A pointer is changed by compare-and-set alone, so that of two writers one learns that it was not the first,
// and what pointers were before is kept.
//
// A conversation is a session, by its id; a bubble is a message of a person in it, by the id of its entry. Both come from
// elsewhere and are hostile: see [CheckID].
package pointers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/agentrun/agentrun/blobref"
)

// Pointer says which blob is a state of a conversation.
type Pointer struct {
	Conversation string
	Bubble       string      // the message at which the state was that; "" for the latest one
	Ref          blobref.Ref // the blob; never zero in what a store returns
	Time         time.Time   // when it was set to that, in UTC; zero where that is not known
}

// Change makes a pointer Ref New where it is Old. The zero Ref is that of no pointer.
type Change struct {
	Bubble   string
	Old, New blobref.Ref
}

// Pointers is a store of pointers. Package pointerstest is the suite that its implementations pass. Methods may be called
// concurrently, from several processes where the store is on disk or beyond it.
type Pointers interface {
	// Get returns a pointer, for bubble "" the latest one. Errors match ErrNotFound where there is none, and are a
	// *DamagedError where it may be another one than can be read.
	Get(ctx context.Context, conversation, bubble string) (Pointer, error)

	// CompareAndSet makes changes of one conversation, in their order, and returns when they are safe. Where the first of
	// them does not find its Old, nothing is changed, and the error is a *ConflictError. One whose New is its Old changes
	// nothing: neither the time nor the history. Implementations say whether several changes are made together or one
	// after the other.
	CompareAndSet(ctx context.Context, conversation string, changes ...Change) error

	// List yields every pointer that is set, as far as it can be read. An error may be yielded for one conversation, with
	// its name in the Pointer, and the list goes on; an error without a name ends it.
	List(ctx context.Context) iter.Seq2[Pointer, error]

	// History yields what the pointers of a conversation were set to, newest first (of those set together, the last one
	// first), those that are set now included, and those that were given up not. An error about some of it, which matches
	// ErrDamaged, comes behind the rest.
	History(ctx context.Context, conversation string) iter.Seq2[Pointer, error]
}

// Repairer is implemented by stores in which parts of what is kept of a conversation may be damaged.
type Repairer interface {
	// Repair gives up what cannot be read of a conversation, which is kept beside the rest. Errors match ErrNotFound
	// where nothing is damaged.
	Repair(ctx context.Context, conversation string) error
}

// Remover is implemented by stores whose pointers can be given up.
type Remover interface {
	// Remove gives up all pointers of a conversation, also those that are damaged, and returns when they are gone for
	// good; setting begins anew after it. Errors match ErrNotFound where nothing is stored of the conversation. What the
	// pointers refer to stays; the history goes. Implementations say what becomes of a removal that fails halfway.
	Remove(ctx context.Context, conversation string) error
}

var (
	// ErrNotFound means that there is no such pointer.
	ErrNotFound = errors.New("no checkpoint")

	// ErrConflict means that a pointer is not what its writer took it to be: somebody else has set it meanwhile.
	ErrConflict = errors.New("the checkpoint was set by somebody else meanwhile")

	// ErrInvalid means that a conversation, a bubble or a change is none.
	ErrInvalid = errors.New("invalid checkpoint")

	// ErrDamaged means that what is stored of a conversation cannot be read as pointers.
	ErrDamaged = errors.New("checkpoints are damaged")
)

// ConflictError says what a pointer is that was taken for something else. It matches ErrConflict.
type ConflictError struct {
	Conversation, Bubble string
	Now                  blobref.Ref // zero where there is no pointer
}

func (e *ConflictError) Error() string {
	now := "it is not set"
	if !e.Now.IsZero() {
		now = "it is " + e.Now.String()
	}
	return fmt.Sprintf("%s: %v: %s; read it, and try again", Name(e.Conversation, e.Bubble), ErrConflict, now)
}

func (e *ConflictError) Unwrap() error { return ErrConflict }

// DamagedError says that a pointer may be another one than can be read. It matches ErrDamaged. Who sets it anew, from
// Last.Ref, makes it known again.
type DamagedError struct {
	Conversation, Bubble string
	Last                 Pointer // what it was before the damage, its Ref zero if nothing is known
	Err                  error   // what is wrong, and where
}

func (e *DamagedError) Error() string {
	before := "nothing that can be read says what it was before"
	if !e.Last.Ref.IsZero() {
		before = "before that it was " + e.Last.Ref.String()
	}
	return fmt.Sprintf("%s is not known: %v: %v, and may have set it; %s", Name(e.Conversation, e.Bubble), ErrDamaged, e.Err, before)
}

func (e *DamagedError) Unwrap() []error { return []error{ErrDamaged, e.Err} }

// Name is how a pointer is named to people.
func Name(conversation, bubble string) string {
	if bubble == "" {
		return "the checkpoint of conversation " + conversation
	}
	return "the checkpoint of conversation " + conversation + " at message " + bubble
}

// NotSet is the error about a pointer that is not set.
func NotSet(conversation, bubble string) error {
	return fmt.Errorf("%w: %s is not set", ErrNotFound, Name(conversation, bubble))
}

// maxID bounds ids so that they stay names of files and objects, with room for what is put behind them.
const maxID = 128

// CheckID refuses what cannot be the id of a conversation or a bubble (kind says which): ids have 1 to 128 letters,
// digits, '-', '_' and '.', and do not begin with a '.'. Errors match ErrInvalid.
func CheckID(kind, id string) error {
	if len(id) == 0 || len(id) > maxID || id[0] == '.' {
		return fmt.Errorf("%w: the %s id %.40q has to have 1 to %d letters, digits, '-', '_' or '.', and none of the last at its beginning", ErrInvalid, kind, id, maxID)
	}
	for _, c := range []byte(id) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return fmt.Errorf("%w: %q cannot be in the %s id %.40q: only letters, digits, '-', '_' and '.' can", ErrInvalid, c, kind, id)
		}
	}
	return nil
}

// CheckGet refuses names of no pointer.
func CheckGet(conversation, bubble string) error {
	if err := CheckID("conversation", conversation); err != nil || bubble == "" {
		return err
	}
	return CheckID("bubble", bubble)
}

// CheckChanges refuses changes that cannot be made by anybody.
func CheckChanges(conversation string, changes []Change) error {
	if len(changes) == 0 {
		return fmt.Errorf("%w: there is no change of conversation %s", ErrInvalid, conversation)
	}
	seen := map[string]bool{}
	for _, c := range changes {
		if err := CheckGet(conversation, c.Bubble); err != nil {
			return err
		}
		if c.New.IsZero() {
			return fmt.Errorf("%w: %s would be set to nothing", ErrInvalid, Name(conversation, c.Bubble))
		}
		if seen[c.Bubble] {
			return fmt.Errorf("%w: %s would be set twice", ErrInvalid, Name(conversation, c.Bubble))
		}
		seen[c.Bubble] = true
	}
	return nil
}
