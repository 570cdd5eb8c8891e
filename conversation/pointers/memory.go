package pointers

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a store of pointers that forgets, for tests and for libraries that keep them elsewhere. The zero value is
// empty. Several changes are made together.
type Memory struct {
	mu       sync.Mutex
	journals map[string]journal // by conversation
}

var (
	_ Pointers = (*Memory)(nil)
	_ Remover  = (*Memory)(nil)
)

func (m *Memory) journal(conversation string) journal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.journals[conversation]
}

// Get returns a pointer.
func (m *Memory) Get(ctx context.Context, conversation, bubble string) (Pointer, error) {
	if err := CheckGet(conversation, bubble); err != nil {
		return Pointer{}, err
	}
	if err := ctx.Err(); err != nil {
		return Pointer{}, fmt.Errorf("reading %s: %w", Name(conversation, bubble), err)
	}
	return m.journal(conversation).get(conversation, bubble)
}

// CompareAndSet makes changes, all of them or none.
func (m *Memory) CompareAndSet(ctx context.Context, conversation string, changes ...Change) error {
	if err := CheckChanges(conversation, changes); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("setting %s: %w", Name(conversation, changes[0].Bubble), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	j := m.journals[conversation]
	s, err := j.change(conversation, changes, time.Now())
	if err != nil || len(s.Set) == 0 {
		return err
	}
	if m.journals == nil {
		m.journals = map[string]journal{}
	}
	j.sets = append(slices.Clip(j.sets), s)
	m.journals[conversation] = j
	return nil
}

// Remove gives up all pointers of a conversation, with their history.
func (m *Memory) Remove(ctx context.Context, conversation string) error {
	if err := CheckID("conversation", conversation); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return removing(conversation, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.journals[conversation]; !ok {
		return removing(conversation, ErrNotFound)
	}
	delete(m.journals, conversation)
	return nil
}

func removing(conversation string, err error) error {
	return fmt.Errorf("removing the checkpoints of conversation %s: %w", conversation, err)
}

// List yields the pointers of all conversations.
func (m *Memory) List(ctx context.Context) iter.Seq2[Pointer, error] {
	return func(yield func(Pointer, error) bool) {
		m.mu.Lock()
		journals := maps.Clone(m.journals)
		m.mu.Unlock()
		for _, conversation := range slices.Sorted(maps.Keys(journals)) {
			if !yieldAll(ctx, journals[conversation].now(conversation), yield) {
				return
			}
		}
	}
}

// History yields what was set.
func (m *Memory) History(ctx context.Context, conversation string) iter.Seq2[Pointer, error] {
	return func(yield func(Pointer, error) bool) {
		if err := CheckID("conversation", conversation); err != nil {
			yield(Pointer{}, err)
			return
		}
		yieldAll(ctx, m.journal(conversation).history(conversation), yield)
	}
}

func yieldAll(ctx context.Context, all []Pointer, yield func(Pointer, error) bool) bool {
	for _, p := range all {
		if err := ctx.Err(); err != nil {
			yield(Pointer{}, fmt.Errorf("listing checkpoints: %w", err))
			return false
		}
		if !yield(p, nil) {
			return false
		}
	}
	return true
}
