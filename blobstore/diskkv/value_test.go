package diskkv

import (
	"bytes"
	"database/sql/driver"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
)

// FuzzValue reads any value as the blob that it is each form of, and as another.
func FuzzValue(f *testing.F) {
	for _, data := range []string{"", "\x00", "00", "deadbeef", " DEADBEEF\n", "~AA==", "AA", "-_-_", "=", "\xff"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ref := blobref.Of(data)
		for name, value := range map[string][]byte{
			"stored":          encode(data),
			"hexadecimal":     []byte(hex.EncodeToString(data)),
			"base64":          []byte(base64.StdEncoding.EncodeToString(data)),
			"unpadded base64": []byte(base64.RawStdEncoding.EncodeToString(data)),
			"url base64":      []byte(base64.URLEncoding.EncodeToString(data)),
		} {
			kept := bytes.Clone(value)
			got, err := decodeVerified(ref, value)
			if err != nil || !bytes.Equal(got, data) || got == nil {
				t.Errorf("%s: %q was read as %q, %v", name, value, got, err)
			}
			if !bytes.Equal(value, kept) {
				t.Errorf("%s: the value was changed", name)
			}
		}
		other := blobref.Of(append(bytes.Clone(data), 1))
		if got, err := decodeVerified(other, data); err == nil && !other.Verify(got) {
			t.Errorf("%q was read as %q, whose id is another", data, got)
		} else if err != nil && !errors.Is(err, blobstore.ErrCorrupt) {
			t.Error(err)
		}
		for _, text := range []bool{false, true} {
			if got, err := decodeOpaque(other, data, text); err == nil && got == nil {
				t.Errorf("%q was read as nil", data)
			}
		}
		if ref, err := parsePointer(string(data)); err == nil && ref.IsZero() {
			t.Errorf("%q was read as the zero id", data)
		}
	})
}

// FuzzComposer finds and replaces the state in any document.
func FuzzComposer(f *testing.F) {
	for _, doc := range []string{
		`{}`, `{"conversationState":"~"}`, `{"a":[{"conversationState":"~AA=="}], "conversationState" : "00ff" }`, ` { "x" : 1 } `, `[]`, `{"conversationState":null}`,
		`{"conversationState":"~AA==","conversationState":"~AQ=="}`, "{\"\\u0063onversationState\":\"~AA==\"}", `{"a":1}}`, `{"conversationState":{"conversationState":1}}`,
	} {
		f.Add([]byte(doc), []byte("state"))
	}
	f.Fuzz(func(t *testing.T, doc, state []byte) {
		at, err := findState(doc)
		if err != nil {
			if !errors.Is(err, blobstore.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(doc, &members); err != nil {
			t.Fatalf("%q was taken for an object: %v", doc, err)
		}
		if value := doc[at.from:at.to]; !bytes.Equal(value, members[stateMember]) {
			t.Fatalf("the state of %q is %q; found %q", doc, members[stateMember], value)
		}
		if _, err := decodeState(doc[at.from:at.to]); err != nil && !errors.Is(err, blobstore.ErrCorrupt) && !errors.Is(err, ErrNoRecord) {
			t.Error(err)
		}
		changed, err := putState(doc, state)
		if err != nil {
			t.Fatal(err)
		}
		at, err = findState(changed)
		if err != nil {
			t.Fatalf("%q became %q: %v", doc, changed, err)
		}
		if got, err := decodeState(changed[at.from:at.to]); err != nil || !bytes.Equal(got, state) {
			t.Fatalf("%q became %q, whose state is %q, %v", doc, changed, got, err)
		}
		var after map[string]json.RawMessage
		if err := json.Unmarshal(changed, &after); err != nil {
			t.Fatalf("%q became %q: %v", doc, changed, err)
		}
		delete(members, stateMember)
		delete(after, stateMember)
		for name, value := range members {
			if !bytes.Equal(after[name], value) {
				t.Fatalf("%q became %q", doc, changed)
			}
		}
		if len(after) != len(members) {
			t.Fatalf("%q became %q", doc, changed)
		}
	})
}

// FuzzHeader reads any first bytes of a file.
func FuzzHeader(f *testing.F) {
	image, err := emptyImage(blobstore.Verified)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(image[:headerSize])
	f.Add([]byte{})
	f.Add([]byte(headerMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		head, err := parseHeader(data)
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
		if err == nil && !head.none && len(data) < headerSize {
			t.Errorf("%d bytes were taken for a header", len(data))
		}
	})
}

func TestANewFileIsMarkedAsOursAndAsOneWithALog(t *testing.T) {
	for _, mode := range []blobstore.Mode{blobstore.Verified, blobstore.Opaque} {
		image, err := emptyImage(mode)
		if err != nil {
			t.Fatal(err)
		}
		head, err := parseHeader(image[:headerSize])
		if err != nil || head != (header{wal: true, app: applicationID}) {
			t.Errorf("%v: %+v, %v", mode, head, err)
		}
		if !bytes.Contains(image, []byte(tableSchema)) {
			t.Errorf("%v: the table is another", mode)
		}
	}
}

func TestIDsAreListedWithTheirPrefixOnly(t *testing.T) {
	for _, prefix := range []string{blobPrefix, checkpointPrefix, bubblePrefix, unverifiedPrefix, composerPrefix, notePrefix, historyPrefix} {
		end := prefixEnd(prefix)
		keys := []string{prefix, prefix + "\x00", prefix + "zzz", prefix + "\U0010ffff", end}
		if !slices.IsSorted(keys) || end[:len(end)-1] != prefix[:len(prefix)-1] {
			t.Errorf("%q ends at %q", prefix, end)
		}
	}
}

// FuzzLog reads any bytes as the log of a database.
func FuzzLog(f *testing.F) {
	f.Add([]byte{}, []byte{})
	f.Add(append([]byte{0x37, 0x7f, 0x06, 0x82}, make([]byte, 28)...), make([]byte, 600))
	f.Fuzz(func(t *testing.T, head, rest []byte) {
		err := scanLog(t.Context(), head[:min(len(head), logHeaderSize)], bytes.NewReader(rest))
		if err != nil && !errors.Is(err, errLogDamaged) {
			t.Error(err)
		}
	})
}

// FuzzText reads any text as what a chat, a history and a note say.
func FuzzText(f *testing.F) {
	f.Add([]byte(`{"latestRootBlobId":"`+emptyRef.Hex()+`"}`), "agentrun:history:c:0000000000000001")
	f.Add([]byte("12 00000000 "+emptyRef.Hex()+" bubble"), "k")
	f.Fuzz(func(t *testing.T, data []byte, key string) {
		for _, value := range []driver.Value{string(data), data, hex.EncodeToString(data), int64(1), nil} {
			if ref, err := parseMeta(value); err == nil == ref.IsZero() {
				t.Errorf("%q was read as %v, %v", data, ref, err)
			} else if err != nil && !errors.Is(err, blobstore.ErrCorrupt) && !errors.Is(err, ErrNoRecord) {
				t.Error(err)
			}
		}
		if _, err := parseHistory(key, string(data)); err != nil && !errors.Is(err, blobstore.ErrCorrupt) {
			t.Error(err)
		}
		for _, made := range []bool{false, true} {
			r, err := parseRecord([]driver.Value{key, int64(len(data)), data, string(data)}, made, 1000)
			if err == nil && (made || len(data) > 1000) || err != nil && !errors.Is(err, blobstore.ErrCorrupt) && !errors.Is(err, blobstore.ErrTooLarge) {
				t.Errorf("%q was read as %v, %v", data, r, err)
			}
		}
		if err := checkID("id", key); err == nil {
			p := Pointer{Conversation: key, Bubble: key}
			if got, err := p.key(); err != nil || strings.Count(got, ":") != 3 || strings.ContainsRune(got, 0) {
				t.Errorf("the key of %q is %q, %v", key, got, err)
			}
		} else if !errors.Is(err, ErrID) {
			t.Error(err)
		}
	})
}
