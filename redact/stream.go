package redact

import "slices"

// Stream replaces the secrets of one stream that comes in pieces.
type Stream struct {
	r        *Redactor
	held     []byte  // what was not written, because it may be the beginning of a secret
	look     int     // how much has to be held before it is looked at again
	before   [2]byte // the bytes before held
	rest     *class  // bytes that are dropped until another one comes
	replaced int64
}

// Append takes the next piece of the stream and appends to dst what can be written. It does not keep p.
func (s *Stream) Append(dst, p []byte) []byte {
	if len(s.held) == 0 {
		return s.run(dst, p, false)
	}
	s.held = append(s.held, p...)
	if len(s.held) < s.look {
		return dst
	}
	b := s.held
	s.held = nil
	return s.run(dst, b, false)
}

// Flush ends the stream: it appends what was held back. The Stream may then be used for another one.
func (s *Stream) Flush(dst []byte) []byte {
	b := s.held
	s.held = nil
	dst = s.run(dst, b, true)
	s.before, s.rest = [2]byte{}, nil
	return dst
}

// Replaced returns how many secrets were replaced so far.
func (s *Stream) Replaced() int64 { return s.replaced }

// run appends what b, behind all before, becomes. whole says that nothing comes behind it; else its end may be held.
func (s *Stream) run(dst, b []byte, whole bool) []byte {
	done, i := 0, 0 // what is written, and what was looked at
	if s.rest != nil {
		for i < len(b) && s.rest[b[i]] {
			i++
		}
		if done = i; i < len(b) {
			s.rest = nil
		}
	}
	url, urlAt := find{to: -1}, 0 // a password further on
	for {
		i = s.r.matcher.next(b, i)
		if url.to >= 0 && i >= url.from {
			dst = s.replace(append(dst, b[done:url.from]...), url, b)
			done, i = url.to, url.to
			url.to = -1
			continue
		}
		if i == len(b) {
			break
		}
		f, v := s.r.matcher.at(b, i, s.before, whole)
		switch {
		case v == unsure:
			if url.to >= 0 {
				i = urlAt
			}
			dst = append(dst, b[done:i]...)
			s.seen(b[:i])
			s.hold(b[i:])
			return dst
		case v == nothing:
			i++
		case f.kind == KindURL:
			url, urlAt = f, i // the user may be a secret too
			i++
		default:
			dst = s.replace(append(dst, b[done:f.from]...), f, b)
			done, i = f.to, f.to
			if url.to >= 0 && url.from < f.to {
				url.to = -1
			}
			if f.rest == nil {
				continue
			}
			for i < len(b) && f.rest[b[i]] {
				i++
			}
			if done = i; i == len(b) {
				s.rest = f.rest
			}
		}
	}
	dst = append(dst, b[done:]...)
	s.seen(b)
	return dst
}

// seen remembers the last two bytes.
func (s *Stream) seen(b []byte) {
	switch n := len(b); {
	case n >= 2:
		s.before = [2]byte{b[n-2], b[n-1]}
	case n == 1:
		s.before = [2]byte{s.before[1], b[0]}
	}
}

// hold keeps b for later. The more there is, the more has to come before it is looked at again, so that a stream that comes byte by byte
// costs what it costs whole.
func (s *Stream) hold(b []byte) {
	s.held = slices.Clone(b)
	s.look = len(b) + 1
	if len(b) > 1024 {
		s.look = len(b) + len(b)/8
	}
}

func (s *Stream) replace(dst []byte, f find, b []byte) []byte {
	s.replaced++
	if f.form == nil {
		return appendMark(dst, f.kind, s.r.number(f.kind, b[f.from:f.to]))
	}
	n := s.r.number(f.kind, []byte(f.form.value))
	if f.form.wide {
		return append(dst, widen(appendMark(nil, f.kind, n))...)
	}
	return appendMark(dst, f.kind, n)
}
