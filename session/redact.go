package session

import (
	"encoding/json"
	"fmt"

	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// SetRedactor has the secrets in entries and in titles replaced from now on, before they are bytes of the log or of a blob; nil has not, and
// costs nothing. It is to be called before the first append. What it does not change:
//
//   - what is signed or encrypted, since it would not be accepted back, and images;
//   - what the log holds already, and what other processes append;
//   - words of the format, such as types and roles;
//   - the entries of package checkpoint and the blobs they name: files that are brought back are what they were, to the byte and under
//     the name they had;
//   - the working directory.
func (s *Session) SetRedactor(r *redact.Redactor) {
	s.redactor = r
	s.mu.Lock()
	title := s.fresh.Title
	s.mu.Unlock()
	if title = s.clearTitle(title); title == "" { // whose number asks the session where it lies
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fresh.Title = title
}

// Redactor is that of SetRedactor, for output that belongs to the session; nil without one.
func (s *Session) Redactor() *redact.Redactor { return s.redactor }

// RedactMessage is a message as the log will have it, for those who show it before or beside that.
func (s *Session) RedactMessage(m entry.Message) (entry.Message, error) {
	if s.redactor == nil {
		return m, nil
	}
	raw, err := json.Marshal(map[string]entry.Message{"message": m})
	if err != nil {
		return nil, fmt.Errorf("looking for secrets in a message: %w", err)
	}
	left, err := persist.Redact(raw, s.redactor.Text)
	if err != nil || &left[0] == &raw[0] {
		return m, err
	}
	var whole struct {
		Message json.RawMessage `json:"message"`
	}
	if err = json.Unmarshal(left, &whole); err == nil {
		m, err = entry.DecodeMessage(whole.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("replacing the secrets in a message: %w", err)
	}
	return m, nil
}

// clearTitle replaces the secrets of a title.
func (s *Session) clearTitle(title string) string {
	if s.redactor == nil || title == "" {
		return title
	}
	left, n := s.redactor.Text([]byte(title))
	if n == 0 {
		return title
	}
	return CleanTitle(string(left))
}
