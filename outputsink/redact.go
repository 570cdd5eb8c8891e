package outputsink

import "io"

// Redactor replaces secrets in one stream that comes in pieces. The sink calls one method at a time.
type Redactor interface {
	// Append appends to dst what there is to be written when p has come, and keeps back what may be the beginning of a secret.
	Append(dst, p []byte) []byte
	// Flush appends what was kept back: the stream has ended.
	Flush(dst []byte) []byte
	// Replaced is how many secrets were replaced so far.
	Replaced() int64
}

// writer returns the writer of a stream. Both are equal where nothing is replaced.
func (s *Sink) writer(stream int) io.Writer {
	if s.redact[stream] != nil {
		return redacting{s, stream}
	}
	return writer{s}
}

// redacting is the writer of a stream in which secrets are replaced.
type redacting struct {
	s      *Sink
	stream int
}

func (w redacting) Write(p []byte) (int, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.closed {
		return 0, ErrClosed
	}
	w.s.cleared = w.s.redact[w.stream].Append(w.s.cleared[:0], p)
	w.s.take(w.s.cleared)
	return len(p), nil
}

// endRedaction takes what was held back of both streams.
func (s *Sink) endRedaction() {
	for _, r := range s.redact {
		if r != nil {
			s.take(r.Flush(nil))
			s.redacted += r.Replaced()
		}
	}
	s.redact, s.cleared = [2]Redactor{}, nil
}
