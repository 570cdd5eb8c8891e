package vault

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/durable/faultfs"
)

func in(home, dir string) Options {
	return Options{Home: home, Dir: func() string { return dir }, Sync: true}
}

func TestTheSameSecretHasTheSameNumberInEveryProcessAndAfterEveryResume(t *testing.T) {
	home, dir := t.TempDir(), filepath.Join(t.TempDir(), "artifacts")
	a, b := New(in(home, dir)), New(in(home, dir))
	if got := a.Number("github", []byte("one")); got != 1 {
		t.Fatalf("the first has number %d: %v", got, a.Err())
	}
	if got := b.Number("aws", []byte("two")); got != 2 {
		t.Errorf("a second process gives %d", got)
	}
	for i, v := range []*Vault{a, b, New(in(home, dir))} {
		if one, two := v.Number("url-password", []byte("one")), v.Number("aws", []byte("two")); one != 1 || two != 2 {
			t.Errorf("vault %d: %d and %d", i, one, two)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, Name))
	if err != nil || bytes.Contains(text, []byte("one")) || bytes.Count(text, []byte("\n")) != 2 {
		t.Errorf("the file holds %q, %v", text, err)
	}
}

func TestManyAtOnceNeverGiveANumberTwice(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	var mu sync.Mutex
	seen := map[int64]string{}
	var all sync.WaitGroup
	for range 4 {
		v := New(in(home, dir))
		all.Go(func() {
			for i := range 30 {
				secret := fmt.Sprintf("secret %d", i)
				n := v.Number("x", []byte(secret))
				mu.Lock()
				if seen[n] != "" && seen[n] != secret || n == 0 {
					t.Errorf("%d is %q and %q: %v", n, seen[n], secret, v.Err())
				}
				seen[n] = secret
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(seen) != 30 {
		t.Errorf("30 secrets have %d numbers", len(seen))
	}
}

func TestOfAnotherHomeNumbersGoOnBehindThoseThatThereAre(t *testing.T) {
	dir := t.TempDir()
	New(in(t.TempDir(), dir)).Number("x", []byte("one"))
	if got := New(in(t.TempDir(), dir)).Number("x", []byte("one")); got != 2 {
		t.Errorf("in another home it has number %d", got)
	}
}

func TestOnlyTheOwnerReadsWhatIsKept(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	New(in(home, dir)).Number("x", []byte("one"))
	o := in(home, dir)
	o.Reversible = true
	v := New(o)
	if one, two := v.Number("x", []byte("one")), v.Number("y", []byte("two\n")); one != 1 || two != 2 {
		t.Fatalf("%d and %d: %v", one, two, v.Err())
	}
	got, err := Reveal(nil, home, dir, "")
	if err != nil || len(got) != 2 || string(got[0].Text) != "one" || string(got[1].Text) != "two\n" {
		t.Errorf("revealed %v, %v", got, err)
	}
	got, err = Reveal(nil, t.TempDir(), dir, "")
	if err != nil || len(got) != 2 || got[0].Text != nil || !got[0].Kept {
		t.Errorf("another home reveals %v, %v", got, err)
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	o.Recipient = id.Recipient().String()
	New(o).Number("z", []byte("three"))
	file := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(file, []byte(id.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err = Reveal(nil, home, dir, file)
	if err != nil || len(got) != 3 || string(got[2].Text) != "three" || got[0].Text != nil {
		t.Errorf("the recipient reads %v, %v", got, err)
	}
}

func TestATornLineIsPassedOverAndItsNumberGivenOutAgain(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	New(in(home, dir)).Number("x", []byte("one"))
	path := filepath.Join(dir, Name)
	whole, _ := os.ReadFile(path)
	for _, tail := range []string{`{"n":2,"kind":"x","ha`, "garbage\n{\"n\":-1}\n[]\n", "\x00\x00\x00"} {
		if err := os.WriteFile(path, append(bytes.Clone(whole), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		v := New(in(home, dir))
		if one, two := v.Number("x", []byte("one")), v.Number("x", []byte("two")); one != 1 || two != 2 {
			t.Errorf("behind %q: %d and %d, %v", tail, one, two, v.Err())
		}
		if again := New(in(home, dir)).Number("x", []byte("two")); again != 2 {
			t.Errorf("behind %q: read back as %d", tail, again)
		}
	}
}

// Every operation fails in turn: then the secret has no number, and the next process gives it one that nothing else has.
func TestAFaultGivesTheNumberZeroAndNeverTwoSecretsOneNumber(t *testing.T) {
	for name, fail := range map[string]func(*faultfs.FS, int){
		"an error":    func(f *faultfs.FS, n int) { f.FailAt(n, unix.EIO) },
		"a full disk": func(f *faultfs.FS, n int) { f.FullAt(n) },
		"a crash":     func(f *faultfs.FS, n int) { f.CrashAt(n) },
	} {
		for n := 0; ; n++ {
			home, dir := t.TempDir(), filepath.Join(t.TempDir(), "a")
			faulty := faultfs.New(durable.OS)
			fail(faulty, n)
			o := in(home, dir)
			o.FS, o.Reversible = faulty, true
			v := New(o)
			first, second := v.Number("x", []byte("one")), v.Number("x", []byte("two"))
			if first != 0 && first == second {
				t.Fatalf("%s at %d: both have number %d", name, n, first)
			}
			if (first == 0 || second == 0) && v.Err() == nil {
				t.Errorf("%s at %d: no number, and no reason", name, n)
			}
			next := New(in(home, dir))
			one, two := next.Number("x", []byte("one")), next.Number("x", []byte("two"))
			if one == 0 || two == 0 || one == two || first != 0 && one != first || second != 0 && two != second {
				t.Errorf("%s at %d: %d and %d before, %d and %d after: %v", name, n, first, second, one, two, next.Err())
			}
			if !faulty.Fired() {
				break
			}
		}
	}
}

func TestAnIdentityOrARecipientThatIsNoneIsToldSo(t *testing.T) {
	if _, err := ParseRecipient("age1nonsense"); err == nil || !strings.Contains(err.Error(), "age-keygen -y") {
		t.Errorf("got %v", err)
	}
	home, dir := t.TempDir(), t.TempDir()
	New(in(home, dir)).Number("x", []byte("one"))
	file := filepath.Join(t.TempDir(), "identity")
	if err := os.WriteFile(file, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Reveal(nil, home, dir, file); err == nil {
		t.Error("nonsense is taken for an identity")
	}
	if _, err := Reveal(nil, home, dir, file+"s"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(filepath.Join(home, keyName), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := New(in(home, dir))
	if n := v.Number("x", []byte("one")); n != 0 || v.Err() == nil {
		t.Errorf("a key that is none gives %d, %v", n, v.Err())
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"n":1,"kind":"github","hash":"` + strings.Repeat("ab", 32) + `","age":"AA=="}` + "\n"))
	f.Add([]byte("{}\n[]\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, it := range parse(b) {
			if it.N < 1 || !isKind(it.Kind) || len(it.Hash) != 64 {
				t.Errorf("%q gives %+v", b, it)
			}
		}
	})
}
