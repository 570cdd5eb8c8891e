package tool

import "github.com/agentrun/agentrun/redact"

// Redacted is the result without secrets in its text and in the strings of its details; pictures stay. nil replaces none.
func (r Result) Redacted(by *redact.Redactor) Result {
	if by == nil {
		return r
	}
	if left, n := by.Text([]byte(r.Text)); n > 0 {
		r.Text = string(left)
	}
	r.Details, _ = by.JSON(r.Details)
	return r
}
