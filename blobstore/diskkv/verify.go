package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"

	"github.com/agentrun/agentrun/blobstore"
)

// Finding is one thing that is wrong with a file.
type Finding struct {
	Key string // what it is about; "" for the structure of the database
	Err error
}

// Verify looks at all of the file: its structure, as SQLite checks it, each blob, and,
// in a file of our own, the checksum of all else that is written here. It yields what
// is wrong; an error ends it.
func (s *Store) Verify(ctx context.Context) iter.Seq2[Finding, error] {
	return func(yield func(Finding, error) bool) {
		more := true
		tell := func(key string, err error) {
			more = more && yield(Finding{Key: key, Err: err}, nil)
		}
		for _, look := range []func(context.Context, func(string, error)) error{s.verifyStructure, s.verifyBlobs, s.verifyRecords, s.verifyHistory} {
			err := look(ctx, tell)
			if !more {
				return
			}
			if err != nil {
				yield(Finding{}, fmt.Errorf("verifying %s: %w", s.path, err))
				return
			}
		}
	}
}

// verifyStructure has SQLite check all pages.
func (s *Store) verifyStructure(ctx context.Context, tell func(string, error)) error {
	var found []string
	err := s.read(ctx, func(_ *source, c *conn) error {
		found = found[:0]
		return c.query(ctx, func(v []driver.Value) error {
			if said := textOf(v[0]); said != "ok" {
				found = append(found, said)
			}
			return nil
		}, "PRAGMA integrity_check(100)")
	})
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case errors.Is(err, errDamaged):
		tell("", err)
	case err != nil:
		return err
	}
	for _, said := range found {
		tell("", fmt.Errorf("%w: %s", errDamaged, said))
	}
	return nil
}

// damage reports whether an error is about what was looked at, not about looking.
func damage(err error) bool {
	return errors.Is(err, blobstore.ErrCorrupt) || errors.Is(err, blobstore.ErrTooLarge) || errors.Is(err, ErrID)
}

func (s *Store) verifyBlobs(ctx context.Context, tell func(string, error)) error {
	for info, err := range s.Walk(ctx) {
		if err == nil {
			if _, err = s.get(ctx, info.Ref); err == nil || errors.Is(err, blobstore.ErrNotFound) {
				continue // or deleted meanwhile
			}
		}
		key := ""
		if !info.Ref.IsZero() {
			key = blobKey(info.Ref) // also in a file of the other form
		}
		if !damage(err) {
			return err
		}
		tell(key, err)
	}
	return nil
}

// verifyRecords looks whether each record has a note that fits, and each note a record.
func (s *Store) verifyRecords(ctx context.Context, tell func(string, error)) error {
	for row, err := range s.rows(ctx, notePrefix, "") {
		if err != nil {
			if damage(err) {
				tell("", err)
				return nil
			}
			return err
		}
		key := textOf(row[0])[len(notePrefix):]
		_, err := s.readRecord(ctx, key, s.opts.MaxBytes)
		switch {
		case errors.Is(err, ErrNoRecord):
			// It may have been removed meanwhile, and its note with it.
			if _, nerr := s.readRecordRaw(ctx, notePrefix+key); nerr == nil {
				tell(key, fmt.Errorf("%w: there is a checksum, and nothing that it is of", blobstore.ErrCorrupt))
			}
		case err != nil && !damage(err):
			return err
		case err != nil:
			tell(key, err)
		}
	}
	if !s.made() {
		return nil
	}
	for _, prefix := range []string{checkpointPrefix, bubblePrefix, unverifiedPrefix, composerPrefix} {
		for row, err := range s.rows(ctx, prefix, ", (SELECT 1 FROM cursorDiskKV AS n WHERE n.key = '"+notePrefix+"' || cursorDiskKV.key)") {
			switch {
			case err != nil && !damage(err):
				return err
			case err != nil:
				tell("", err)
			case row[1] == nil:
				tell(textOf(row[0]), fmt.Errorf("%w: it has no checksum", blobstore.ErrCorrupt))
			}
		}
	}
	return nil
}

func (s *Store) readRecordRaw(ctx context.Context, key string) (r record, err error) {
	err = s.read(ctx, func(src *source, c *conn) (err error) {
		r, err = findRecord(src.patience(ctx), c, false, key, maxPointer)
		return err
	})
	return r, err
}

func (s *Store) verifyHistory(ctx context.Context, tell func(string, error)) error {
	for row, err := range s.rows(ctx, historyPrefix, historyColumns) {
		key := ""
		if err == nil {
			key = textOf(row[0])
			if _, err = parseHistory(key, textOf(row[1])); err == nil {
				continue
			}
		}
		if !damage(err) {
			return err
		}
		tell(key, err)
		if key == "" {
			return nil
		}
	}
	return nil
}
