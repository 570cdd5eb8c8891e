// Package s3pointers keeps the pointers of conversations in a bucket, by conditional puts.
//
// A pointer is an object <conversation>/latest/now or <conversation>/at/<bubble>/now, with JSON of its blob, its time and how
// often it was set before; what it was the n-th time is kept beside it, in an object named by n in 16 hexadecimal digits.
// That one is written before the pointer changes, from what the pointer is: of writers who come at once, each writes the
// same. Several changes are made one after the other: with an error, those before the one that failed are made.
package s3pointers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/s3store"
	"github.com/agentrun/agentrun/conversation/pointers"
)

// Store is the pointers in a bucket.
type Store struct {
	objects *s3store.Objects
	now     func() time.Time
}

var (
	_ pointers.Pointers = (*Store)(nil)
	_ pointers.Remover  = (*Store)(nil)
)

// New returns the pointers among objects, which have a prefix for them alone and stay the caller's to close.
func New(objects *s3store.Objects) *Store { return &Store{objects, time.Now} }

const (
	nowName    = "now"
	latestName = "latest"
	bubbleName = "at"
)

// folder is where a pointer is.
func folder(conversation, bubble string) string {
	if bubble == "" {
		return conversation + "/" + latestName + "/"
	}
	return conversation + "/" + bubbleName + "/" + bubble + "/"
}

// parseName is the way back of folder, with what follows it.
func parseName(name string) (p pointers.Pointer, rest string, ok bool) {
	parts := strings.Split(name, "/")
	switch {
	case len(parts) == 3 && parts[1] == latestName:
		p.Conversation, rest = parts[0], parts[2]
	case len(parts) == 4 && parts[1] == bubbleName && parts[2] != "":
		p.Conversation, p.Bubble, rest = parts[0], parts[2], parts[3]
	default:
		return p, "", false
	}
	return p, rest, pointers.CheckGet(p.Conversation, p.Bubble) == nil
}

// value is what an object says.
type value struct {
	Blob  string    `json:"blob"`
	Times uint64    `json:"times"` // how often it was set before
	Time  time.Time `json:"time"`
	ref   blobref.Ref
}

func parseValue(data []byte) (v value, err error) {
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("%w: %w", pointers.ErrDamaged, err)
	}
	if v.ref, err = blobref.ParseHex(v.Blob); err != nil {
		return v, fmt.Errorf("%w: %w", pointers.ErrDamaged, err)
	}
	return v, nil
}

// read reads an object; without one, the value is zero and so is its version.
func (s *Store) read(ctx context.Context, name string) (value, s3store.Version, error) {
	data, version, err := s.objects.Get(ctx, name)
	if errors.Is(err, blobstore.ErrNotFound) {
		return value{}, s3store.Version{}, nil
	}
	if err != nil {
		return value{}, s3store.Version{}, err
	}
	v, err := parseValue(data)
	if err != nil {
		err = fmt.Errorf("reading object %s: %w", name, err)
	}
	return v, version, err
}

// Get returns a pointer.
func (s *Store) Get(ctx context.Context, conversation, bubble string) (pointers.Pointer, error) {
	if err := pointers.CheckGet(conversation, bubble); err != nil {
		return pointers.Pointer{}, err
	}
	v, _, err := s.read(ctx, folder(conversation, bubble)+nowName)
	if err == nil && v.ref.IsZero() {
		return pointers.Pointer{}, pointers.NotSet(conversation, bubble)
	}
	if err != nil {
		return pointers.Pointer{}, fmt.Errorf("reading %s: %w", pointers.Name(conversation, bubble), err)
	}
	return pointers.Pointer{Conversation: conversation, Bubble: bubble, Ref: v.ref, Time: v.Time}, nil
}

// CompareAndSet makes changes in their order.
func (s *Store) CompareAndSet(ctx context.Context, conversation string, changes ...pointers.Change) error {
	if err := pointers.CheckChanges(conversation, changes); err != nil {
		return err
	}
	for _, c := range changes {
		err := s.set(ctx, conversation, c)
		if err != nil && !errors.Is(err, pointers.ErrConflict) { // which says of what
			err = fmt.Errorf("setting %s: %w", pointers.Name(conversation, c.Bubble), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) set(ctx context.Context, conversation string, c pointers.Change) error {
	at := folder(conversation, c.Bubble)
	is, version, err := s.read(ctx, at+nowName)
	if err != nil {
		return err
	}
	if is.ref != c.Old {
		return &pointers.ConflictError{Conversation: conversation, Bubble: c.Bubble, Now: is.ref}
	}
	if c.New == c.Old {
		return nil
	}
	next := value{Blob: c.New.Hex(), Time: s.now().UTC()}
	if !version.IsZero() {
		if err := s.remember(ctx, at, is); err != nil {
			return err
		}
		next.Times = is.Times + 1
		if !next.Time.After(is.Time) { // the clock of another machine is ahead
			next.Time = is.Time.Add(1)
		}
	}
	return s.put(ctx, conversation, c, at+nowName, next, version)
}

// remember keeps what a pointer is, before it changes.
func (s *Store) remember(ctx context.Context, at string, is value) error {
	data, err := json.Marshal(is)
	if err != nil {
		return err
	}
	_, err = s.objects.PutIfAbsent(ctx, fmt.Sprintf("%s%016x", at, is.Times), data)
	if errors.Is(err, s3store.ErrConflict) {
		return nil // somebody else did
	}
	return err
}

func (s *Store) put(ctx context.Context, conversation string, c pointers.Change, name string, next value, version s3store.Version) error {
	data, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if version.IsZero() {
		_, err = s.objects.PutIfAbsent(ctx, name, data)
	} else {
		_, err = s.objects.PutIfMatch(ctx, name, data, version)
	}
	if err == nil {
		return nil
	}
	// An answer that was lost, and one to a request that was sent twice, may be of a change that was made.
	is, _, readErr := s.read(ctx, name)
	switch {
	case readErr != nil:
		return errors.Join(err, readErr)
	case is.Blob == next.Blob && is.Times == next.Times && is.Time.Equal(next.Time):
		return nil
	case errors.Is(err, s3store.ErrConflict):
		return &pointers.ConflictError{Conversation: conversation, Bubble: c.Bubble, Now: is.ref}
	}
	return err
}

// Remove gives up the pointers of a conversation, with their history: each pointer behind its history, so that one that is
// left after an error is found again. Nobody may set them meanwhile; what they set could be removed, too.
func (s *Store) Remove(ctx context.Context, conversation string) error {
	err := pointers.CheckID("conversation", conversation)
	if err != nil {
		return err
	}
	var names []string
	for name, listErr := range s.objects.List(ctx, conversation+"/") {
		if listErr != nil {
			err = listErr
			break
		}
		if _, rest, ok := parseName(name); ok && (rest == nowName || isEarlier(rest)) {
			names = append(names, name) // by rising name, in which numbers are before now
		}
	}
	if err == nil && len(names) == 0 {
		err = pointers.ErrNotFound
	}
	for _, name := range names {
		if err == nil {
			err = s.objects.Delete(ctx, name)
		}
	}
	if err != nil {
		return fmt.Errorf("removing the checkpoints of conversation %s: %w", conversation, err)
	}
	return nil
}

// isEarlier reports whether a name is that of what a pointer was.
func isEarlier(name string) bool {
	_, err := strconv.ParseUint(name, 16, 64)
	return err == nil
}

// List yields the pointers of all conversations.
func (s *Store) List(ctx context.Context) iter.Seq2[pointers.Pointer, error] {
	return func(yield func(pointers.Pointer, error) bool) {
		for name, err := range s.objects.List(ctx, "") {
			if err != nil {
				yield(pointers.Pointer{}, err)
				return
			}
			p, rest, ok := parseName(name)
			if !ok || rest != nowName {
				continue
			}
			v, version, err := s.read(ctx, name)
			if err == nil && version.IsZero() {
				continue // it was removed meanwhile
			}
			p.Ref, p.Time = v.ref, v.Time
			if !yield(p, err) {
				return
			}
		}
	}
}

// History yields what was set, newest first, by the clocks of those who set it; of one pointer, in the order in which it
// was set.
func (s *Store) History(ctx context.Context, conversation string) iter.Seq2[pointers.Pointer, error] {
	return func(yield func(pointers.Pointer, error) bool) {
		all, err := s.history(ctx, conversation)
		if err != nil {
			yield(pointers.Pointer{Conversation: conversation}, fmt.Errorf("reading the history of checkpoints: %w", err))
			return
		}
		for _, p := range all {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (s *Store) history(ctx context.Context, conversation string) (all []pointers.Pointer, err error) {
	if err := pointers.CheckID("conversation", conversation); err != nil {
		return nil, err
	}
	type setting struct {
		bubble string
		times  uint64
	}
	seen := map[setting]bool{}
	for name, err := range s.objects.List(ctx, conversation+"/") {
		if err != nil {
			return nil, err
		}
		p, rest, ok := parseName(name)
		if !ok || rest != nowName && !isEarlier(rest) {
			continue
		}
		v, version, err := s.read(ctx, name)
		if err != nil {
			return nil, err
		}
		// What a pointer is may be kept beside it already, by a writer that came no further or is about to.
		if is := (setting{p.Bubble, v.Times}); !version.IsZero() && !seen[is] {
			seen[is] = true
			p.Ref, p.Time = v.ref, v.Time
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b pointers.Pointer) int { return b.Time.Compare(a.Time) })
	return all, nil
}
