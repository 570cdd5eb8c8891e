package diskkv

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// A command-line program keeps each of its chats in a file of another form, store.db:
// the same blobs in a table of their own, and in another, under the key 0, JSON in
// hexadecimal that names the blob of the latest state. Such a file is read only.
const (
	selectChatBlob = "SELECT octet_length(data), CASE WHEN octet_length(data) <= ? THEN data END FROM blobs WHERE id = ?"
	selectChatMeta = "SELECT octet_length(value), CASE WHEN octet_length(value) <= ? THEN value END FROM meta WHERE key = ?"

	// listChatBlobs yields keys as a table cursorDiskKV has them.
	listChatBlobs = "SELECT '" + blobPrefix + "' || id, octet_length(data) FROM blobs" +
		" WHERE id > substr(?, 14) AND '" + blobPrefix + "' < ? AND octet_length(id) <= 1024 ORDER BY id LIMIT ?"

	// maxMeta is the longest text that is read as the JSON of a chat.
	maxMeta = 1 << 20
)

// inspectChat reports whether a file without a table cursorDiskKV is of that form.
func inspectChat(ctx context.Context, c *conn) (bool, error) {
	tables := 0
	err := c.query(ctx, func(v []driver.Value) error {
		if v[0] == "table" && v[1] != nil && v[1] != int64(0) {
			tables++
		}
		return nil
	}, "SELECT type, rootpage FROM sqlite_schema WHERE lower(name) IN ('blobs', 'meta')")
	if err != nil || tables != 2 {
		return false, err
	}
	if err := checkColumns(ctx, c, "blobs", "id", "data"); err != nil {
		return false, err
	}
	return true, checkColumns(ctx, c, "meta", "key", "value")
}

// LatestRoot returns the blob of the latest state of the one chat that a file of the
// form store.db has. For a file with a table cursorDiskKV, and for a chat without a
// state, the error is ErrNoRecord.
func (s *Store) LatestRoot(ctx context.Context) (ref blobref.Ref, err error) {
	err = s.read(ctx, func(src *source, c *conn) error {
		if !src.chat {
			return ErrNoRecord
		}
		value, err := valueOf(src.patience(ctx), c, selectChatMeta, "0", maxMeta)
		if err == errNoValue {
			err = ErrNoRecord
		}
		if err == nil {
			ref, err = parseMeta(value)
		}
		return err
	})
	if errors.Is(err, errAbsent) {
		err = ErrNoRecord
	}
	if err != nil {
		return blobref.Ref{}, fmt.Errorf("reading the latest state of %s: %w", s.path, err)
	}
	return ref, nil
}

// parseMeta reads the JSON of a chat.
func parseMeta(value driver.Value) (blobref.Ref, error) {
	raw, _, err := bytesOf(value)
	if err != nil {
		return blobref.Ref{}, err
	}
	doc, ok := fromHex(raw)
	if !ok {
		return blobref.Ref{}, fmt.Errorf("%w: its text is not hexadecimal", blobstore.ErrCorrupt)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc, &members); err != nil {
		return blobref.Ref{}, fmt.Errorf("%w: its JSON: %w", blobstore.ErrCorrupt, err)
	}
	var id string
	if root, ok := members["latestRootBlobId"]; ok {
		if err := json.Unmarshal(root, &id); err != nil {
			return blobref.Ref{}, fmt.Errorf("%w: its latestRootBlobId is no text", blobstore.ErrCorrupt)
		}
	}
	if id == "" {
		return blobref.Ref{}, ErrNoRecord
	}
	return parsePointer(id)
}
