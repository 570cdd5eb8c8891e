package conversation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
	"github.com/agentrun/agentrun/session/entry"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// lineWriter writes entries that the log did not have, each under the one before it, as
// package session writes them.
type lineWriter struct {
	w     io.Writer
	n     int64
	count int
	limit int64           // of n
	taken map[string]bool // ids
	seed  [32]byte        // of new ids: the same state gives the same log
	at    time.Time       // of the next entry
	leaf  string          // "" for none

	first    string // entry since this was set to ""
	messages int    // since it was set to 0: entries that are messages, or begin a turn
}

// id is an id that no entry has: want, or 24 hexadecimal digits.
func (l *lineWriter) id(want string) string {
	if want != "" && len(want) <= 64 && !l.taken[want] && isPlain(want) {
		l.taken[want] = true
		return want
	}
	for {
		l.seed = sha256.Sum256(l.seed[:])
		if id := hex.EncodeToString(l.seed[:12]); !l.taken[id] {
			l.taken[id] = true
			return id
		}
	}
}

// isPlain reports whether an id of another program is one that is written as it is.
func isPlain(id string) bool {
	for _, c := range []byte(id) {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// add writes an entry and returns its id.
func (l *lineWriter) add(b entry.Body, want string) (string, error) {
	fields, err := entry.AppendFields(nil, b)
	if err != nil {
		return "", fmt.Errorf("writing a %s: %w", b.EntryType(), err)
	}
	id := l.id(want)
	if l.first == "" {
		l.first = id
	}
	if c, ok := b.(entry.Custom); !ok || c.CustomType == TurnType && c.Data == nil {
		l.messages++
	}
	line := l.envelope(b.EntryType(), id)
	line = append(line, fields...)
	return id, l.end(line)
}

// envelope begins a line.
func (l *lineWriter) envelope(typ, id string) []byte {
	line := ecmajson.AppendString([]byte(`{"type":`), typ)
	line = ecmajson.AppendString(append(line, `,"id":`...), id)
	line = append(line, `,"parentId":`...)
	if l.leaf == "" {
		line = append(line, "null"...)
	} else {
		line = ecmajson.AppendString(line, l.leaf)
	}
	line = append(line, `,"timestamp":"`...)
	line = l.at.UTC().AppendFormat(line, "2006-01-02T15:04:05.000Z")
	l.leaf = id
	return append(line, '"')
}

// end seals a line and writes it.
func (l *lineWriter) end(line []byte) error {
	sum := crc32.Checksum(line, castagnoli)
	line = fmt.Appendf(line, `,"crc":"%08x"}`, sum)
	if l.n+int64(len(line)) > l.limit {
		return fmt.Errorf("its log has more than %d bytes: %w", l.limit, ErrTooMuch)
	}
	n, err := l.w.Write(append(line, '\n'))
	l.n += int64(n)
	l.count++
	return err
}

// again writes an entry of the log once more, in another place: everything but its id,
// its parent and its crc stays to the byte.
func (l *lineWriter) again(e entry.Entry) error {
	id := l.id("")
	parent := l.leaf
	line := []byte{'{'}
	gjson.ParseBytes(e.Raw()).ForEach(func(key, v gjson.Result) bool {
		if key.Str == "crc" {
			return true
		}
		if len(line) > 1 {
			line = append(line, ',')
		}
		line = append(append(line, key.Raw...), ':')
		switch {
		case key.Str == "id":
			line = ecmajson.AppendString(line, id)
		case key.Str == "parentId" && parent == "":
			line = append(line, "null"...)
		case key.Str == "parentId":
			line = ecmajson.AppendString(line, parent)
		default:
			line = append(line, v.Raw...)
		}
		return true
	})
	if !bytes.Contains(line, []byte(`"parentId":`)) && parent != "" {
		line = ecmajson.AppendString(append(line, `,"parentId":`...), parent)
	}
	l.leaf = id
	return l.end(line)
}
