package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/redact/gitleaks"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/internal/persist"
)

// KindSecret is what looks like a secret and stands in a log or an artifact in the clear.
const KindSecret = "secret"

// Secrets looks for secrets in the texts of a session's entries and in its artifacts, by the rules of package redact and by those of
// gitleaks, and reports each that it finds, never itself: the same one once for each entry and artifact. dir may be nil. What is signed or
// encrypted, images, logs of subagents, and the blobs of files that checkpoints keep are not looked at. It returns how many it reported.
func Secrets(ctx context.Context, s *session.Session, dir *artifacts.Dir, report func(Finding)) (int, error) {
	found := 0
	at := func(file string, line *int, offset *int64, size int64) func(string) {
		return func(rule string) {
			found++
			report(Finding{
				Kind: KindSecret, File: file, Line: line, Offset: offset, Bytes: &size,
				What: fmt.Sprintf("by the rule %s there is a secret in it: take it out of use where it is a real one; --redact on replaces later ones before they are kept", rule),
			})
		}
	}
	for e, err := range s.Entries(ctx) {
		if err != nil {
			return found, fmt.Errorf("looking for secrets in %s: %w", s.Path(), err)
		}
		line, offset := e.Line(), e.Offset()
		l := newLook(at(s.Path(), &line, &offset, int64(len(e.Raw()))))
		_, _ = persist.Redact(e.Raw(), func(text []byte) ([]byte, int) { // damage is not what is looked for
			l.text(text)
			return text, 0
		})
	}
	if dir == nil {
		return found, nil
	}
	list, err := dir.List(ctx)
	if err != nil {
		return found, err
	}
	for _, a := range list {
		if a.State == artifacts.Missing {
			continue
		}
		if err := inArtifact(ctx, dir, a, at(a.Path, nil, nil, a.Bytes)); err != nil {
			return found, err
		}
	}
	return found, nil
}

// inArtifact looks through an artifact in windows that overlap, so that nothing shorter than the overlap is missed.
func inArtifact(ctx context.Context, dir *artifacts.Dir, a artifacts.Info, report func(string)) error {
	const window, overlap = 1 << 20, 64 << 10
	r, err := dir.Open(ctx, a.ID)
	if err != nil {
		return err
	}
	defer r.Close()
	l := newLook(report)
	buf := make([]byte, window)
	for off := int64(0); ; off += window - overlap {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := r.ReadAt(buf, off)
		l.text(buf[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("looking for secrets in %s: %w", a.URL(), err)
		}
	}
}

// look is at one entry or artifact.
type look struct {
	report   func(rule string)
	seen     map[string]bool // secrets that were reported
	redactor *redact.Redactor
}

func newLook(report func(rule string)) *look {
	l := &look{report: report, seen: map[string]bool{}}
	l.redactor = redact.New(redact.Options{Number: func(kind string, secret []byte) int64 {
		l.found(kind, secret)
		return 1
	}})
	return l
}

func (l *look) found(rule string, secret []byte) {
	if !l.seen[string(secret)] {
		l.seen[string(secret)] = true
		l.report(rule)
	}
}

func (l *look) text(text []byte) {
	if len(text) < redact.MinSecret {
		return
	}
	left, _ := l.redactor.Text(text)
	for _, f := range gitleaks.Find(left) { // what is left: nothing is found twice
		l.found(f.Rule, left[f.From:f.To])
	}
}
