package python

import "github.com/agentrun/agentrun/redact"

// redact replaces secrets in the texts of what a cell showed. Pictures stay.
func (o *Outcome) redact(r *redact.Redactor) {
	if o.Result != nil {
		if left, n := r.Text([]byte(*o.Result)); n > 0 {
			text := string(left)
			o.Result = &text
		}
	}
	for i := range o.Displays {
		if d := &o.Displays[i]; !d.Image() {
			d.Data, _ = r.Text(d.Data)
		}
	}
}
