package supervisor

import (
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
)

// Redaction says what a supervisor is to replace in what it records for a client. It goes through the socket alone: the supervisor
// has neither the client's environment nor its flags.
type Redaction struct {
	Mode      redact.Mode `json:"mode"`
	Recipient string      `json:"recipient,omitempty"` // of age, for redact.Reversible
	Values    []string    `json:"values,omitempty"`    // of variables that were withheld
}

// redact gives the session what replaces secrets in it.
func (s *server) redact(log *session.Session, q *request) {
	if q.Redact != nil && q.Redact.Mode.Active() && s.opts.Redact != nil {
		log.SetRedactor(s.opts.Redact(log, *q.Redact))
	}
}
