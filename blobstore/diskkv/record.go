package diskkv

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agentrun/agentrun/blobstore"
)

// What this package wrote and no hash proves has a note beside it.
const notePrefix = "agentrun:note:"

var (
	// ErrNoRecord means that there is no pointer, metadata or state of that name.
	ErrNoRecord = errors.New("no such record")

	// ErrID means that a name cannot be part of a key.
	ErrID = errors.New("not a valid id")
)

// maxID is the length in bytes of the longest id.
const maxID = 256

// checkID is the one place that says what can be part of a key: what does not end it,
// nor the part of it.
func checkID(kind, id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: the %s is empty", ErrID, kind)
	case len(id) > maxID:
		return fmt.Errorf("%w: the %s has %d bytes; the limit is %d", ErrID, kind, len(id), maxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: the %s is not UTF-8: %q", ErrID, kind, id)
	}
	for _, r := range id {
		if r == ':' || r < ' ' || r == 0x7f {
			return fmt.Errorf("%w: the %s has the character %q: %q", ErrID, kind, r, id)
		}
	}
	return nil
}

// record is a value that no hash proves.
type record struct {
	value driver.Value
	time  time.Time // when it was written here; zero where that is not known
}

// recordColumns are the value of a key, unless it is too long, its length, and its note.
const recordColumns = ", octet_length(value), CASE WHEN octet_length(value) <= %d THEN value END," +
	" (SELECT CASE WHEN octet_length(n.value) <= 64 THEN n.value END FROM cursorDiskKV AS n WHERE n.key = '" + notePrefix + "' || cursorDiskKV.key)"

// parseRecord reads a row of recordColumns, behind its key. In a file of our own every
// record has a note that fits.
func parseRecord(row []driver.Value, made bool, limit int64) (record, error) {
	key := textOf(row[0])
	size, ok := row[1].(int64)
	if !ok {
		return record{}, ErrNoRecord
	}
	if size > limit {
		return record{}, fmt.Errorf("%w: %d bytes; the limit is %d", blobstore.ErrTooLarge, size, limit)
	}
	r := record{value: row[2]}
	if !made {
		return r, nil
	}
	raw, _, err := bytesOf(r.value)
	if err != nil {
		return record{}, err
	}
	sum, ms, _ := strings.Cut(textOf(row[3]), " ")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || sum != checksum(key, raw, at) {
		return record{}, fmt.Errorf("%w: its checksum is another", blobstore.ErrCorrupt)
	}
	r.time = time.UnixMilli(at)
	return r, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the CRC-32C of the key, the time and the value, as 8 hexadecimal digits.
func checksum(key string, value []byte, at int64) string {
	sum := crc32.Update(0, castagnoli, fmt.Appendf(nil, "%s\x00%d\x00", key, at))
	return fmt.Sprintf("%08x", crc32.Update(sum, castagnoli, value))
}

// findRecord reads a record in a transaction, or outside of one.
func findRecord(ctx context.Context, c *conn, made bool, key string, limit int64) (r record, err error) {
	found := false
	err = c.query(ctx, func(v []driver.Value) (err error) {
		found = true
		r, err = parseRecord(v, made, limit)
		return err
	}, "SELECT key"+fmt.Sprintf(recordColumns, limit)+" FROM cursorDiskKV WHERE key = ? LIMIT 1", key)
	if err == nil && !found {
		err = ErrNoRecord
	}
	return r, err
}

// readRecord reads a record of the file.
func (s *Store) readRecord(ctx context.Context, key string, limit int64) (r record, err error) {
	err = s.read(ctx, func(src *source, c *conn) (err error) {
		if src.chat {
			return ErrNoRecord
		}
		r, err = findRecord(src.patience(ctx), c, src.made, key, limit)
		return err
	})
	if errors.Is(err, errAbsent) {
		err = ErrNoRecord
	}
	return r, err
}

// writeRecord stores a value and its note in the transaction that is going on.
func writeRecord(c *conn, key string, value driver.Value, now time.Time) error {
	raw, _, err := bytesOf(value)
	if err != nil {
		return err
	}
	bg := context.Background()
	if _, err := c.exec(bg, upsertValue, key, value); err != nil {
		return err
	}
	at := now.UnixMilli()
	_, err = c.exec(bg, upsertValue, notePrefix+key, checksum(key, raw, at)+" "+strconv.FormatInt(at, 10))
	return err
}

// deleteRecord removes a value and its note in the transaction that is going on.
func deleteRecord(c *conn, key string) error {
	for _, k := range []string{key, notePrefix + key} {
		if _, err := c.exec(context.Background(), deleteValue, k); err != nil {
			return err
		}
	}
	return nil
}
