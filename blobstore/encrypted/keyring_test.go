package encrypted_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/blobstore/memory"
)

func TestAPassphraseFileIsReadToTheByte(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		same       []string // what opens with it
	}{
		{"one line", "pass\n", []string{"pass"}},
		{"no newline at the end", "pass", []string{"pass"}},
		{"newest first", "new\nold\n", []string{"new", "old"}},
		{"spaces count", " pass \n", []string{" pass "}},
		{"a carriage return counts", "pass\r\n", []string{"pass\r"}},
		{"the same one twice", "pass\npass\n", []string{"pass"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "passphrases")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			keys, err := encrypted.OpenKeyring(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if keys.Len() != len(tt.same) {
				t.Fatalf("%d passphrases, want %d", keys.Len(), len(tt.same))
			}
			for _, passphrase := range tt.same {
				below := memory.New(blobstore.Opaque)
				ref := put(t, open(t, below, ring(t, passphrase), encrypted.Options{}), []byte("data"))
				if _, err := open(t, below, keys, encrypted.Options{}).Get(t.Context(), ref); err != nil {
					t.Errorf("%q does not open: %v", passphrase, err)
				}
			}
			below := memory.New(blobstore.Opaque)
			ref := put(t, open(t, below, keys, encrypted.Options{}), []byte("data"))
			if _, err := open(t, below, ring(t, tt.same[0]), encrypted.Options{}).Get(t.Context(), ref); err != nil {
				t.Errorf("the first line does not encrypt: %v", err)
			}
		})
	}
}

func TestAPassphraseFileThatIsNoneIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"empty":           "",
		"a newline":       "\n",
		"an empty line":   "new\n\nold\n",
		"two newlines":    "pass\n\n",
		"too many":        lines(33),
		"too many bytes":  strings.Repeat("x", 64<<10+1),
		"an empty newest": "\nold\n",
	} {
		path := filepath.Join(dir, "passphrases")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := encrypted.OpenKeyring(path, nil); err == nil {
			t.Errorf("%s: no error", name)
		} else if text != "" && strings.Contains(err.Error(), "passphrase 3") {
			t.Errorf("%s: the error tells a passphrase: %v", name, err)
		}
	}
	if _, err := encrypted.OpenKeyring(dir, nil); err == nil {
		t.Error("a directory: no error")
	}
	if _, err := encrypted.OpenKeyring(filepath.Join(dir, "absent"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "passphrase %d\n", i)
	}
	return b.String()
}

func TestAPassphraseFileThatOthersMayWriteIsRefusedAndOneThatTheyMayReadIsTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passphrases")
	if err := os.WriteFile(path, []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		mode         os.FileMode
		told, failed string
	}{
		{0o600, "", ""},
		{0o400, "", ""},
		{0o640, "others than its owner may read " + path + " (mode 0640): run chmod 600 on it", ""},
		{0o604, "others than its owner may read " + path + " (mode 0604): run chmod 600 on it", ""},
		{0o644, "others than its owner may read " + path + " (mode 0644): run chmod 600 on it", ""},
		{0o620, "", "others than its owner may write " + path + " (mode 0620): run chmod 600 on it"},
		{0o664, "", "others than its owner may write " + path + " (mode 0664): run chmod 600 on it"},
		{0o666, "", "others than its owner may write " + path + " (mode 0666): run chmod 600 on it"},
	} {
		if err := os.Chmod(path, tt.mode); err != nil {
			t.Fatal(err)
		}
		told := ""
		_, err := encrypted.OpenKeyring(path, func(err error) { told += err.Error() })
		if told != tt.told {
			t.Errorf("mode %04o: told %q, want %q", tt.mode, told, tt.told)
		}
		if (err == nil) != (tt.failed == "") || err != nil && !strings.Contains(err.Error(), tt.failed) {
			t.Errorf("mode %04o: %v, want %q", tt.mode, err, tt.failed)
		}
		if _, err := encrypted.OpenKeyring(path, nil); (err == nil) != (tt.failed == "") {
			t.Errorf("mode %04o, nobody to tell: %v", tt.mode, err)
		}
	}
}

func TestWhoHasTheWrongPassphraseIsToldWhichFileHasThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passphrases")
	if err := os.WriteFile(path, []byte("yours\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, err := encrypted.OpenKeyring(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]encrypted.Form{"own": encrypted.Own, "seed": encrypted.Seed} {
		below := memory.New(blobstore.Opaque)
		data := []byte("text")
		if err := open(t, below, ring(t, "mine"), encrypted.Options{Form: form}).Set(t.Context(), blobref.Of(data), data); err != nil {
			t.Fatal(err)
		}
		_, err := open(t, below, keys, encrypted.Options{Form: form}).Get(t.Context(), blobref.Of(data))
		if !errors.Is(err, encrypted.ErrWrongKey) || !strings.Contains(err.Error(), "none of the passphrases in "+path+" opens it") {
			t.Errorf("%s: Get = %v; want ErrWrongKey with the name of the file", name, err)
		}
	}
}

func TestAKeyringDoesNotPrintItsPassphrases(t *testing.T) {
	keys := ring(t, "secret one", "secret two")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{keys, struct{ K *encrypted.Keyring }{keys}} {
			if out := fmt.Sprintf(verb, v); strings.Contains(out, "secret") || strings.Contains(out, fmt.Sprintf("%x", "secret")) {
				t.Errorf("%s prints %s", verb, out)
			}
		}
	}
}

func TestParametersThatAreTooMuchAreRefused(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	for _, kdf := range []encrypted.KDF{
		{Time: 0, Threads: 1, MemoryKiB: 64},
		{Time: 1, Threads: 0, MemoryKiB: 64},
		{Time: 1, Threads: 17, MemoryKiB: 1 << 10},
		{Time: 1, Threads: 4, MemoryKiB: 31},
		{Time: 1, Threads: 1, MemoryKiB: 256<<10 + 1},
		{Time: 4, Threads: 1, MemoryKiB: 256 << 10},
		{Time: 255, Threads: 1, MemoryKiB: 1<<32 - 1},
	} {
		if _, err := encrypted.New(below, ring(t, "pass"), encrypted.Options{KDF: kdf}); err == nil {
			t.Errorf("%+v was taken", kdf)
		}
	}
	for name, opts := range map[string]encrypted.Options{
		"a chunk size that is no power of two": {ChunkBytes: 5000},
		"chunks of 2 KiB":                      {ChunkBytes: 2 << 10},
		"chunks of 32 MiB":                     {ChunkBytes: 32 << 20},
		"keyed ids in the seed's form":         {Form: encrypted.Seed, KeyedIDs: true},
		"an unknown form":                      {Form: 9},
		"an unknown mode":                      {Mode: 9},
	} {
		if _, err := encrypted.New(below, ring(t, "pass"), opts); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	if _, err := encrypted.New(memory.New(blobstore.Verified), ring(t, "pass"), encrypted.Options{}); !errors.Is(err, blobstore.ErrMode) {
		t.Errorf("a verified store below: %v, want ErrMode", err)
	}
	if _, err := encrypted.New(below, nil, encrypted.Options{}); err == nil {
		t.Error("no keyring was taken")
	}
}

// Blobs that ask for much memory cost nothing: what the header asks for is looked at
// first.
func TestABlobThatAsksForTooMuchIsRefusedBeforeTheWork(t *testing.T) {
	s := open(t, memory.New(blobstore.Opaque), ring(t, "pass"), encrypted.Options{})
	data := []byte("data")
	ref := put(t, s, data)
	for name, change := range map[string]func([]byte){
		"4 TiB of memory": func(b []byte) { copy(b[21:], []byte{0xff, 0xff, 0xff, 0xff}) },
		"255 passes":      func(b []byte) { b[19] = 255; copy(b[21:], []byte{0, 4, 0, 0}) },
		"255 threads":     func(b []byte) { b[20] = 255 },
		"no pass":         func(b []byte) { b[19] = 0 },
		"chunks of 2^63":  func(b []byte) { b[18] = 63 },
		"unknown flags":   func(b []byte) { b[17] = 0x80 },
	} {
		sealed := ciphertext(t, s, ref)
		change(sealed)
		encrypted.FixCRC(sealed)
		below := memory.New(blobstore.Opaque)
		if err := below.Set(t.Context(), ref, sealed); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if _, err := open(t, below, ring(t, "pass"), encrypted.Options{}).Get(t.Context(), ref); !errors.Is(err, encrypted.ErrTampered) {
			t.Errorf("%s: %v (after %v)", name, err, time.Since(began))
		}
	}
}

func TestToolsWithoutTheKeyKnowCiphertext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "kept")
	below, err := localdir.Open(dir, localdir.Options{Mode: blobstore.Opaque})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, below, ring(t, "pass"), encrypted.Options{})
	data := []byte("data")
	ref := put(t, s, data)
	sealed := ciphertext(t, s, ref)
	if !encrypted.IsEncrypted(sealed) || encrypted.IsEncrypted(data) || encrypted.IsEncrypted(nil) {
		t.Error("IsEncrypted is wrong")
	}
	// The directory as a whole.
	if _, err := localdir.Open(dir, localdir.Options{}); !errors.Is(err, blobstore.ErrEncrypted) || !errors.Is(err, blobstore.ErrMode) {
		t.Errorf("opening it as verified blobs = %v, want ErrEncrypted", err)
	}
	// One file of it among verified blobs.
	other, err := localdir.Open(filepath.Join(t.TempDir(), "blobs"), localdir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put(t, other, []byte("so that the directory is there"))
	path := filepath.Join(other.Dir(), ref.Hex())
	if err := os.WriteFile(path, sealed, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"Get":   second(other.Get(t.Context(), ref)),
		"Open":  second(other.Open(t.Context(), ref)),
		"Check": second(other.Check(t.Context(), ref)),
	} {
		if !errors.Is(err, blobstore.ErrEncrypted) || errors.Is(err, blobstore.ErrCorrupt) {
			t.Errorf("%s = %v, want ErrEncrypted alone", name, err)
		}
	}
	if kept, err := os.ReadFile(path); err != nil || !bytes.Equal(kept, sealed) {
		t.Errorf("the ciphertext did not stay: %v", err)
	}
	put(t, other, data)
	if got, err := other.Get(t.Context(), blobref.Of(data)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("Get after storing the plaintext = %q, %v", got, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAStoreFullOfStrangeSaltsDoesNotKeepItsReaderBusy(t *testing.T) {
	below := memory.New(blobstore.Opaque)
	keys := ring(t, "pass")
	s := open(t, below, keys, encrypted.Options{})
	mine := put(t, s, []byte("mine"))
	var strange []blobref.Ref
	for i := range 100 {
		other := open(t, memory.New(blobstore.Opaque), ring(t, "another"), encrypted.Options{})
		ref := put(t, other, []byte{byte(i)})
		plant(t, s, ref, ciphertext(t, other, ref))
		strange = append(strange, ref)
	}
	stopped := 0
	for range 2 {
		for _, ref := range strange {
			_, err := s.Get(t.Context(), ref)
			if !errors.Is(err, encrypted.ErrWrongKey) {
				t.Fatalf("Get = %v, want ErrWrongKey", err)
			}
			if strings.Contains(err.Error(), "no more are tried") {
				stopped++
			}
		}
	}
	if stopped < 100-64 {
		t.Errorf("%d of 200 reads did without Argon2id because there were too many, want %d or more", stopped, 100-64)
	}
	if _, err := s.Get(t.Context(), mine); err != nil {
		t.Errorf("Get of what is not strange = %v", err)
	}
	if _, err := open(t, memory.New(blobstore.Opaque), keys, encrypted.Options{}).PutBytes(t.Context(), nil); err != nil {
		t.Errorf("another store with the keyring = %v", err)
	}
}
