package conversation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	agentv1 "github.com/agentrun/agentrun/gen/agent/v1"
)

// overlay is a store with blobs in memory over another one, which is not changed.
type overlay struct {
	blobstore.Store
	mu   sync.RWMutex
	over map[blobref.Ref][]byte
}

func newOverlay(under blobstore.Store) *overlay {
	return &overlay{Store: under, over: map[blobref.Ref][]byte{}}
}

// Get looks into memory first.
func (o *overlay) Get(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	o.mu.RLock()
	data, there := o.over[ref]
	o.mu.RUnlock()
	switch {
	case there:
		return append([]byte(nil), data...), nil
	case o.Store == nil:
		return nil, blobstore.ErrNotFound
	}
	return o.Store.Get(ctx, ref)
}

// Set keeps the blob in memory.
func (o *overlay) Set(_ context.Context, ref blobref.Ref, data []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over[ref] = append([]byte(nil), data...)
	return nil
}

// upgrade makes a state of a legacy one. Its unknown fields are kept.
func upgrade(ctx context.Context, old *agentv1.ConversationState, w *writer) (*agentv1.ConversationStateStructure, error) {
	u := &upgrader{ctx: ctx, w: w}
	m := &agentv1.ConversationStateStructure{
		PendingToolCalls: old.PendingToolCalls, TokenDetails: old.TokenDetails,
		Plans: old.Plans, CommunicateUpdateHistory: old.CommunicateUpdateHistory,
		CommunicateUpdateFinalSummary:             old.CommunicateUpdateFinalSummary,
		CommunicateUpdateCompletedSubtitle:        old.CommunicateUpdateCompletedSubtitle,
		CommunicateUpdateStatesByParentToolCallId: old.CommunicateUpdateStatesByParentToolCallId,
	}
	for _, text := range old.RootPromptMessagesJson {
		m.RootPromptMessagesJson = append(m.RootPromptMessagesJson, u.bytes([]byte(text)))
	}
	for _, item := range old.Todos {
		m.Todos = append(m.Todos, u.put(item))
	}
	if old.Summary != nil {
		m.Summary = u.put(old.Summary)
	}
	if old.Plan != nil {
		m.Plan = u.put(old.Plan)
	}
	for _, t := range old.Turns {
		m.Turns = append(m.Turns, u.turn(t))
	}
	archives := old.SummaryArchives
	if old.SummaryArchive != nil {
		archives = append([]*agentv1.ConversationSummaryArchive{old.SummaryArchive}, archives...)
	}
	for _, a := range archives {
		m.SummaryArchives = append(m.SummaryArchives, u.put(a))
	}
	for path, f := range old.FileStates {
		if m.FileStatesV2 == nil {
			m.FileStatesV2 = map[string]*agentv1.FileStateStructure{}
		}
		m.FileStatesV2[path] = u.file(f)
	}
	m.ProtoReflect().SetUnknown(old.ProtoReflect().GetUnknown())
	if u.err == nil {
		u.err = w.sync(ctx)
	}
	return m, u.err
}

// upgrader stores the parts of a legacy state.
type upgrader struct {
	ctx context.Context
	w   *writer
	err error
}

func (u *upgrader) bytes(data []byte) []byte {
	ref, err := u.w.put(u.ctx, data)
	if u.err == nil {
		u.err = err
	}
	return idOf(ref)
}

func (u *upgrader) put(m proto.Message) []byte {
	data, err := marshal.Marshal(m)
	if u.err == nil {
		u.err = err
	}
	return u.bytes(data)
}

func (u *upgrader) turn(old *agentv1.ConversationTurn) []byte {
	t := &agentv1.ConversationTurnStructure{}
	t.ProtoReflect().SetUnknown(old.ProtoReflect().GetUnknown())
	switch {
	case old.GetAgentConversationTurn() != nil:
		from := old.GetAgentConversationTurn()
		a := &agentv1.AgentConversationTurnStructure{RequestId: from.RequestId}
		if from.UserMessage != nil {
			a.UserMessage = u.put(from.UserMessage)
		}
		for _, step := range from.Steps {
			a.Steps = append(a.Steps, u.put(step))
		}
		a.ProtoReflect().SetUnknown(from.ProtoReflect().GetUnknown())
		t.Turn = &agentv1.ConversationTurnStructure_AgentConversationTurn{AgentConversationTurn: a}
	case old.GetShellConversationTurn() != nil:
		from := old.GetShellConversationTurn()
		s := &agentv1.ShellConversationTurnStructure{}
		if from.ShellCommand != nil {
			s.ShellCommand = u.put(from.ShellCommand)
		}
		if from.ShellOutput != nil {
			s.ShellOutput = u.put(from.ShellOutput)
		}
		s.ProtoReflect().SetUnknown(from.ProtoReflect().GetUnknown())
		t.Turn = &agentv1.ConversationTurnStructure_ShellConversationTurn{ShellConversationTurn: s}
	}
	return u.put(t)
}

// file makes the second form of a file's state of the first one. What is not set stays
// not set: the file was deleted, or was not there before.
func (u *upgrader) file(f *agentv1.FileState) *agentv1.FileStateStructure {
	s := &agentv1.FileStateStructure{}
	if f.Content != nil {
		s.Content = u.bytes([]byte(*f.Content))
	}
	if f.InitialContent != nil {
		s.InitialContent = u.bytes([]byte(*f.InitialContent))
	}
	return s
}

// Upgrade returns the state with what older versions have in its place today: file_states
// as file_states_v2, summary_archive as the first of summary_archives, and, where there
// are no turns, turns_old as turns if all of them are ids of such. What is made anew is
// in memory, over the store. What cannot be read stays as it is. s is not changed, and is
// returned where there is nothing to do.
func (s *State) Upgrade(ctx context.Context) (*State, error) {
	m := s.Message
	if len(m.FileStates) == 0 && len(m.SummaryArchive) == 0 && (len(m.TurnsOld) == 0 || len(m.Turns) > 0) {
		return s, nil
	}
	m = proto.CloneOf(m)
	over := newOverlay(s.store)
	u := &upgrader{ctx: ctx, w: newWriter(over)}
	for _, path := range sortedKeys(m.FileStates) {
		f := &agentv1.FileState{}
		if err := s.message(ctx, m.FileStates[path], "state of a file", f); holeOf(err) != nil {
			continue
		} else if err != nil {
			return nil, err
		}
		if m.FileStatesV2 == nil {
			m.FileStatesV2 = map[string]*agentv1.FileStateStructure{}
		}
		if _, newer := m.FileStatesV2[path]; !newer {
			m.FileStatesV2[path] = u.file(f)
		}
		delete(m.FileStates, path)
	}
	if len(m.SummaryArchive) > 0 {
		known := func(id []byte) bool { return bytes.Equal(id, m.SummaryArchive) }
		if !slices.ContainsFunc(m.SummaryArchives, known) {
			m.SummaryArchives = append([][]byte{m.SummaryArchive}, m.SummaryArchives...)
		}
		m.SummaryArchive = nil
	}
	if len(m.TurnsOld) > 0 && len(m.Turns) == 0 && s.areTurns(ctx, m.TurnsOld) {
		m.Turns, m.TurnsOld = m.TurnsOld, nil
	}
	if u.err == nil {
		u.err = u.w.sync(ctx)
	}
	if u.err != nil {
		return nil, fmt.Errorf("upgrading a conversation state: %w", u.err)
	}
	return &State{Message: m, store: over, limits: s.limits, fields: s.fields, side: s.side}, nil
}

// areTurns reports whether all of some values are ids of turns.
func (s *State) areTurns(ctx context.Context, ids [][]byte) bool {
	for _, id := range ids {
		t := &agentv1.ConversationTurnStructure{}
		if s.message(ctx, id, "turn", t) != nil || t.Turn == nil {
			return false
		}
	}
	return true
}
