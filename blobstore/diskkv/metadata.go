package diskkv

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

const (
	metadataSuffix   = ":cloudAgent:metadata"
	unverifiedPrefix = "agentrun:unverified:"

	// maxMetadata is the longest text that is read as metadata: a few ids and numbers.
	maxMetadata = 1 << 20
)

// Metadata returns the bytes of the CloudAgentStatePersistedMetadata of a cloud agent.
// Where there is none, the error is ErrNoRecord.
func (s *Store) Metadata(ctx context.Context, bcID string) ([]byte, error) {
	data, err := s.metadata(ctx, bcID)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of cloud agent %q in %s: %w", bcID, s.path, err)
	}
	return data, nil
}

func (s *Store) metadata(ctx context.Context, bcID string) ([]byte, error) {
	if err := checkID("cloud agent", bcID); err != nil {
		return nil, err
	}
	r, err := s.readRecord(ctx, bcID+metadataSuffix, maxMetadata)
	if err != nil {
		return nil, err
	}
	raw, _, err := bytesOf(r.value)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return raw, nil
	}
	data, ok := fromBase64(raw)
	if !ok {
		return nil, fmt.Errorf("%w: the text is not base64", blobstore.ErrCorrupt)
	}
	return data, nil
}

// SetMetadata replaces the metadata of a cloud agent.
func (s *Store) SetMetadata(ctx context.Context, bcID string, data []byte) error {
	err := checkID("cloud agent", bcID)
	if text := base64.StdEncoding.EncodeToString(data); err == nil && len(text) > maxMetadata {
		err = fmt.Errorf("%w: %d bytes", blobstore.ErrTooLarge, len(data))
	} else if err == nil {
		now := time.Now()
		err = s.write(ctx, len(text), func(c *conn) error { return writeRecord(c, bcID+metadataSuffix, text, now) })
	}
	if err != nil {
		return fmt.Errorf("storing the metadata of cloud agent %q in %s: %w", bcID, s.path, err)
	}
	return nil
}

// SetUnverified stores bytes that a server vouches for although they do not hash to
// the id that it gave. Get does not find them.
func (s *Store) SetUnverified(ctx context.Context, ref blobref.Ref, data []byte) error {
	var err error
	switch {
	case ref.IsZero():
		err = fmt.Errorf("%w: the zero reference names no blob", blobref.ErrInvalid)
	case int64(len(data)) > s.opts.MaxBytes:
		err = fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, len(data), s.opts.MaxBytes)
	default:
		if data == nil {
			data = []byte{}
		}
		now := time.Now()
		err = s.write(ctx, len(data), func(c *conn) error {
			return writeRecord(c, unverifiedPrefix+ref.Hex(), data, now)
		})
	}
	if err != nil {
		return fmt.Errorf("storing unverified bytes for %s in %s: %w", ref, s.path, err)
	}
	return nil
}

// GetUnverified returns what SetUnverified stored, and nothing else: a server's word
// for it is all there is. Where there is none, the error is blobstore.ErrNotFound.
func (s *Store) GetUnverified(ctx context.Context, ref blobref.Ref) ([]byte, error) {
	r, err := s.readRecord(ctx, unverifiedPrefix+ref.Hex(), s.opts.MaxBytes)
	if errors.Is(err, ErrNoRecord) {
		err = blobstore.ErrNotFound
	}
	var data []byte
	if err == nil {
		data, _, err = bytesOf(r.value)
	}
	if err != nil {
		return nil, fmt.Errorf("getting unverified bytes for %s from %s: %w", ref, s.path, err)
	}
	return data, nil
}

// DeleteUnverified removes what SetUnverified stored; where there is none, it does
// nothing.
func (s *Store) DeleteUnverified(ctx context.Context, ref blobref.Ref) error {
	err := s.write(ctx, 0, func(c *conn) error { return deleteRecord(c, unverifiedPrefix+ref.Hex()) })
	if err != nil {
		return fmt.Errorf("deleting unverified bytes for %s from %s: %w", ref, s.path, err)
	}
	return nil
}
