package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Version is the version of the session format that this package writes.
const Version = 3

// Migrator brings the lines of a file of an older version up to [Version], one
// after the other, in memory. It is for one file and one goroutine.
//
// Version 1 has no tree: entries get ids and each the one before it as parent. An
// id is made of the line's number and bytes, so a line that stays has the same id
// on every load. Version 2 calls the role "custom" "hookMessage".
//
// Members keep their order and bytes; only white space between them may go.
type Migrator struct {
	version int
	ids     []string        // of the entries so far; version 1
	taken   map[string]bool // version 1
}

// NewMigrator returns a migrator for a file whose header has the given version; 0
// stands for none, which means 1.
func NewMigrator(version int) *Migrator {
	return &Migrator{version: max(version, 1), taken: make(map[string]bool)}
}

// Migrate returns the line in the form of [Version]: raw itself, which it does not
// modify, if nothing has to change. It must be called for every entry of the file,
// in order, not for the header; line is the number of the line, and may count from
// anything as long as it is the same on every load.
func (m *Migrator) Migrate(line int, raw []byte) ([]byte, error) {
	if m.version >= Version {
		return raw, nil
	}
	if !gjson.Parse(text(raw)).IsObject() {
		return nil, fmt.Errorf("migrating line %d: not a JSON object", line)
	}
	if m.version == 1 {
		raw = m.addTree(line, raw)
	}
	return renameHook(raw), nil
}

// addTree gives a line of version 1 its id and parent, behind its type.

func (m *Migrator) addTree(line int, raw []byte) []byte {
	id := str(gjson.Get(text(raw), "id"))
	parent := gjson.Get(text(raw), "parentId").Raw
	if id == "" || m.taken[id] {
		id = m.newID(line, raw)
	}
	if parent == "" {
		parent = "null"
		if n := len(m.ids); n > 0 {
			parent = text(ecmajson.AppendString(nil, m.ids[n-1]))
		}
	}
	tree := append(ecmajson.AppendString([]byte(`"id":`), id), `,"parentId":`+parent...)

	out := make([]byte, 0, len(raw)+len(tree)+2)
	out = append(out, '{')
	add := func(member []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, member...)
	}
	isCompaction := str(gjson.Get(text(raw), "type")) == TypeCompaction
	placed := false
	for name, member := range members(raw) {
		if name == "id" || name == "parentId" {
			continue
		}
		if name == "firstKeptEntryIndex" && isCompaction {
			if kept, ok := m.kept(raw); ok {
				member = ecmajson.AppendString([]byte(`"firstKeptEntryId":`), kept)
			}
		}
		add(member)
		if !placed && name == "type" {
			placed = true
			add(tree)
		}
	}
	if !placed {
		add(tree)
	}
	m.ids = append(m.ids, id)
	m.taken[id] = true
	return append(out, '}')
}

// kept returns the id of the entry whose index the compaction in raw names. Index 0
// is the header; who kept all of it kept everything, so it stands for the first
// entry. An index that is none, or not yet, keeps nothing.
func (m *Migrator) kept(raw []byte) (string, bool) {
	index := gjson.Get(text(raw), "firstKeptEntryIndex")
	if index.Type != gjson.Number {
		return "", false
	}
	i := max(index.Num, 1)
	if i != float64(int(i)) || int(i) > len(m.ids) {
		return "", false
	}
	return m.ids[int(i)-1], true
}

// newID makes the id of a line of version 1: hex digits of the SHA-256 of its
// number, a space, and its bytes, eight of them or as many more as it takes to
// differ from the ids before.
func (m *Migrator) newID(line int, raw []byte) string {
	hash := sha256.New()
	hash.Write(append(strconv.AppendInt(nil, int64(line), 10), ' '))
	hash.Write(raw)
	sum := hex.EncodeToString(hash.Sum(nil))
	for n := 8; n < len(sum); n += 4 {
		if !m.taken[sum[:n]] {
			return sum[:n]
		}
	}
	return sum
}

// renameHook gives the messages of version 2 the role they have in version 3.
func renameHook(raw []byte) []byte {
	if !mentions(raw, RoleHookMessage) || str(gjson.Get(text(raw), "type")) != TypeMessage {
		return raw
	}
	role := gjson.Get(text(raw), "message.role")
	if str(role) != RoleHookMessage || role.Index <= 0 {
		return raw
	}
	return slices.Concat(raw[:role.Index], []byte(`"`+RoleCustom+`"`), raw[role.Index+len(role.Raw):])
}
