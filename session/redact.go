package session

import "github.com/agentrun/agentrun/redact"

// SetRedactor has the secrets in entries replaced from now on, before they are bytes of the log or of a blob; nil has not, and costs
// nothing. What is signed or encrypted stays as it is, since it would not be accepted back. Neither does it change what
// the log holds already, titles, and what other processes append. It is to be called before the first append.
func (s *Session) SetRedactor(r *redact.Redactor) { s.redactor = r }

// Redactor is that of SetRedactor, for output that belongs to the session; nil without one.
func (s *Session) Redactor() *redact.Redactor { return s.redactor }
