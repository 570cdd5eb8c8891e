package httpstore

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// faults are the errors that both sides know by a code.
var faults = [...]struct {
	code   string
	status int
	err    error
}{
	{"not-found", http.StatusNotFound, blobstore.ErrNotFound},
	{"corrupt", http.StatusInternalServerError, blobstore.ErrCorrupt},
	{"mismatch", http.StatusUnprocessableEntity, blobstore.ErrMismatch},
	{"too-large", http.StatusRequestEntityTooLarge, blobstore.ErrTooLarge},
	{"read-only", http.StatusForbidden, blobstore.ErrReadOnly},
	{"mode", http.StatusConflict, blobstore.ErrMode},
	{"invalid", http.StatusBadRequest, blobref.ErrInvalid},
	{"unsupported", http.StatusNotImplemented, blobstore.ErrUnsupported},
	{"exists", http.StatusPreconditionFailed, errExists},
	{"queue-full", http.StatusServiceUnavailable, blobstore.ErrQueueFull},
	{"unavailable", http.StatusServiceUnavailable, blobstore.ErrUnavailable},
	{"no-space", http.StatusInsufficientStorage, syscall.ENOSPC},
}

// errExists is the answer to a conditional put where something is.
var errExists = errors.New("there is a blob of that name already")

// fault is the body of an answer that is an error.
type fault struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// maxFault is how much of an error's body is read.
const maxFault = 4 << 10

// explain is the error that an answer stands for.
func explain(resp *http.Response) error {
	var body fault
	if b, err := io.ReadAll(io.LimitReader(resp.Body, maxFault)); err == nil {
		_ = json.Unmarshal(b, &body) // another server's page says nothing
	}
	said := "the server answered " + strconv.Itoa(resp.StatusCode)
	if text := printable(body.Message); text != "" {
		said += ": " + text
	}
	err := errors.New(said)
	for _, f := range faults {
		if f.code == body.Error {
			if f.code == "queue-full" || f.code == "unavailable" || f.code == "no-space" {
				return &blobstore.UnavailableError{Err: fmt.Errorf("%w: %w", f.err, err), After: retryAfter(resp.Header)}
			}
			return fmt.Errorf("%w: %w", f.err, err)
		}
	}
	switch status := resp.StatusCode; {
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: it wants another bearer token", err)
	case status == http.StatusForbidden:
		return fmt.Errorf("%w: the token, or this machine, may not do that there", err)
	case status == http.StatusNotFound && (resp.Request.Method == http.MethodPut || resp.Request.Method == http.MethodPost):
		return fmt.Errorf("%w: there is no blob store at that URL", err)
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %w", blobstore.ErrNotFound, err)
	case status == http.StatusRequestedRangeNotSatisfiable:
		return &beyondError{err}
	case status == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %w", errExists, err)
	case status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", blobstore.ErrTooLarge, err)
	case status == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", blobstore.ErrMismatch, err)
	case status == http.StatusMethodNotAllowed, status == http.StatusNotImplemented:
		return fmt.Errorf("%w: %w", blobstore.ErrUnsupported, err)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests,
		status >= 500 && status != http.StatusHTTPVersionNotSupported:
		return &blobstore.UnavailableError{Err: err, After: retryAfter(resp.Header)}
	}
	return err
}

// unanswered is the error of a request that got no answer, or half of one.
func unanswered(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", ctx.Err(), context.Cause(ctx))
	}
	var certificate *tls.CertificateVerificationError
	if errors.Is(err, errRedirect) || errors.As(err, &certificate) {
		return err
	}
	return &blobstore.UnavailableError{Err: err}
}

// retryAfter is how long a server asks to wait: seconds, or a date. It is at most a
// day, since a server is not trusted with longer.
func retryAfter(h http.Header) time.Duration {
	const most = 24 * time.Hour
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, most)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(time.Until(at), 0), most)
	}
	return 0
}

// printable is what a server says, on one line, without what a terminal would obey.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	const most = 300
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return strings.TrimSpace(text)
}
