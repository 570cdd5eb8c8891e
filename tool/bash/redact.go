package bash

import (
	"fmt"
	"io"

	"github.com/agentrun/agentrun/redact"
)

// redacting puts what replaces secrets before the writers of the streams: one for each pipe, since a secret comes through one. The function
// that it returns passes on what was held back and says how many there were. Without Redact the writers stay what they are.
func (r *run) redacting(stdout, stderr io.Writer) (out, err io.Writer, end func() int64) {
	if r.Redact == nil {
		return stdout, stderr, func() int64 { return 0 }
	}
	writers := []*redact.Writer{r.Redact.Writer(stdout)}
	out, err = writers[0], writers[0]
	if r.Separate {
		writers = append(writers, r.Redact.Writer(stderr))
		err = writers[1]
	}
	return out, err, func() (n int64) {
		for _, w := range writers {
			_ = w.Close() // the sink gives no error, and that of Live is told apart
			n += w.Replaced()
		}
		return n
	}
}

// tellRedacted says how many secrets were replaced.
func (res *Result) tellRedacted(n int64) {
	switch res.Summary.Redacted = n; {
	case n == 1:
		res.Notes = append(res.Notes, "1 secret in the output was replaced")
	case n > 1:
		res.Notes = append(res.Notes, fmt.Sprintf("%d secrets in the output were replaced", n))
	}
}
