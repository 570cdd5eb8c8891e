package storeurl_test

import (
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/encrypted"
	"github.com/agentrun/agentrun/blobstore/httpstore"
	"github.com/agentrun/agentrun/blobstore/memory"
	"github.com/agentrun/agentrun/blobstore/storetest"
	"github.com/agentrun/agentrun/internal/s3test"
	"github.com/agentrun/agentrun/kv"
	"github.com/agentrun/agentrun/kv/kvhttp"
	"github.com/agentrun/agentrun/storeurl"
)

func open(t *testing.T, url string) *storeurl.Stack {
	t.Helper()
	s, err := storeurl.Open(t.Context(), url, storeurl.Options{
		Report: func(err error) { t.Log(err) },
		KDF:    encrypted.KDF{Time: 1, MemoryKiB: 8, Threads: 1}, // not what is tested
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// passphrase is a file with one.
func passphrase(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "passphrase")
	if err := os.WriteFile(name, []byte("correct horse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestEveryStackPassesTheSuite(t *testing.T) {
	key := passphrase(t)
	encrypted := "encrypted=passphrase-file:" + key
	for _, layers := range []string{
		"", "cached=1MiB", encrypted, encrypted + "&form=seed", "retry=on", "remote=mem:", "remote=mem:&retry=on",
		"cached=1MiB&retry=on&" + encrypted,
		"remote=mem:&retry=on&cached=1MiB&" + encrypted,
		"remote=mem:%3F" + encrypted,
	} {
		for _, kind := range []string{"dir:", "diskkv:", "mem:"} {
			if kind != "dir:" && !strings.Contains(layers, "cached=1MiB&retry") {
				continue // the layers are the same over any store
			}
			name := strings.ReplaceAll(kind+"?"+layers, key, "KEY")
			t.Run(strings.ReplaceAll(name, "/", "|"), func(t *testing.T) {
				t.Parallel()
				storetest.Run(t, func() blobstore.Store {
					url := kind
					if kind != "mem:" {
						url += filepath.Join(t.TempDir(), "store")
					}
					return open(t, url+"?"+layers).Store
				}, storetest.Largest(1<<20))
			})
		}
	}
}

func TestRemoteStoresPassTheSuite(t *testing.T) {
	storetest.Run(t, func() blobstore.Store {
		server := httptest.NewServer(httpstore.NewHandler(memory.New(blobstore.Verified), httpstore.HandlerOptions{}))
		t.Cleanup(server.Close)
		return open(t, server.URL+"?retry=on").Store
	}, storetest.NotLocal(), storetest.Largest(1<<20))
}

func TestABucketPassesTheSuite(t *testing.T) {
	server := s3test.Start(t)
	key, n := passphrase(t), 0
	storetest.Run(t, func() blobstore.Store {
		n++
		return open(t, fmt.Sprintf("s3://%s/%d?endpoint=%s&retry=on&encrypted=passphrase-file:%s", server.Bucket, n, server.Endpoint, key)).Store
	}, storetest.NotLocal(), storetest.Largest(1<<20))
}

func TestAPeerPassesTheSuite(t *testing.T) {
	storetest.Run(t, func() blobstore.Store {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- kvhttp.Serve(t.Context(), l, memory.New(blobstore.Verified), kvhttp.ServeOptions{}) }()
		t.Cleanup(func() {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
		return open(t, "kv:http://"+l.Addr().String()+"?retry=on").Store
	}, storetest.NotLocal(), storetest.Largest(1<<20))
}

// names are the layers of a stack, outermost first.
func names(s blobstore.Store) string {
	var all []string
	for s != nil {
		all = append(all, reflect.TypeOf(s).Elem().PkgPath()[len("github.com/agentrun/agentrun/blobstore/"):])
		u, ok := s.(blobstore.Unwrapper)
		if !ok {
			break
		}
		s = u.Unwrap()
	}
	return strings.Join(all, " ")
}

func TestLayersStandInOneOrderHoweverTheyAreWritten(t *testing.T) {
	dir, key := t.TempDir(), passphrase(t)
	parameters := []string{"retry=on", "cached=1MiB", "encrypted=passphrase-file:" + key, "remote=dir:" + dir + "/there"}
	for turn := range parameters {
		turned := append(append([]string{}, parameters[turn:]...), parameters[:turn]...)
		s := open(t, "dir:"+dir+"/here?"+strings.Join(turned, "&"))
		if got, want := names(s.Store), "cached encrypted writethrough localdir"; got != want {
			t.Errorf("with %v the layers are %s, want %s", turned, got, want)
		}
		if got, want := names(s.Remote), "retry localdir"; got != want {
			t.Errorf("with %v the remote is %s, want %s", turned, got, want)
		}
		if s.Cached == nil || s.Encrypted == nil || s.Writethrough == nil || s.Base == nil {
			t.Errorf("a layer is not named: %+v", s)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	s := open(t, "dir:"+dir+"/other?retry=on&cached=1MiB&encrypted=passphrase-file:"+key)
	if got, want := names(s.Store), "cached encrypted retry localdir"; got != want {
		t.Errorf("without a remote the layers are %s, want %s", got, want)
	}
}

func TestBlobsArriveAtTheRemoteAlsoLaterAndEncrypted(t *testing.T) {
	dir, key := t.TempDir(), passphrase(t)
	down := httptest.NewServer(nil)
	down.Close()
	// Without its remote an encrypted store cannot begin: that may have a marker.
	offline := "dir:" + dir + "/here?remote=" + down.URL
	s := open(t, offline)
	ref, err := blobstore.Put(t.Context(), s.Store, []byte("plaintext"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir + "/here.queue"); err != nil || len(entries) != 1 {
		t.Fatalf("queues: %v, %v", entries, err)
	}
	// A machine that has the remote and the passphrase has the blob.
	there := "dir:" + dir + "/there"
	here := "dir:" + dir + "/sealed?encrypted=passphrase-file:" + key + "&remote=" + there
	s = open(t, here)
	second, err := blobstore.Put(t.Context(), s.Store, []byte("more"))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	remote := open(t, there+"?encrypted=passphrase-file:"+key)
	if data, err := remote.Store.Get(t.Context(), second); string(data) != "more" || err != nil {
		t.Errorf("the remote has %q, %v", data, err)
	}
	if data, err := open(t, "dir:"+dir+"/here").Store.Get(t.Context(), ref); string(data) != "plaintext" || err != nil {
		t.Errorf("the store that is offline has %q, %v", data, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "there", second.Hex()))
	if err != nil || strings.Contains(string(raw), "more") {
		t.Errorf("at the remote lies %q, %v", raw, err)
	}
}

func TestADirectoryOfAnotherProgramIsRead(t *testing.T) {
	dir, data := t.TempDir(), []byte("by another program")
	if err := os.WriteFile(filepath.Join(dir, blobref.Of(data).Hex()), data, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, "dir:"+dir).Store.Get(t.Context(), blobref.Of(data)); string(got) != string(data) || err != nil {
		t.Errorf("Get = %q, %v", got, err)
	}
	_, err := storeurl.Open(t.Context(), "dir:"+dir+"?encrypted=passphrase-file:"+passphrase(t), storeurl.Options{})
	if !errors.Is(err, blobstore.ErrMode) {
		t.Errorf("plain blobs are opened as encrypted ones: %v", err)
	}
}

func TestWhatCannotBeOpenedIsSaidWithTheStore(t *testing.T) {
	for url, want := range map[string]string{
		"http://example.com":                              "use https",
		"dir:x?encrypted=passphrase-file:/does/not/exist": "passphrase file",
		"s3://UPPER": "lower-case",
		"s3://bucket?endpoint=http://example.com": "use https",
		"kv:http://example.com":                   "TLS",
		"dir:x?remote=http://example.com":         "the remote: ",
		"dir:/dev/null":                           "not a directory",
	} {
		s, err := storeurl.Open(t.Context(), url, storeurl.Options{})
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), strings.Split(url, "?")[0]) {
			t.Errorf("Open(%s) = %v, want a sentence with %q", url, err, want)
		}
	}
}

func TestATokenGoesToItsServer(t *testing.T) {
	server := httptest.NewServer(httpstore.NewHandler(memory.New(blobstore.Verified), httpstore.HandlerOptions{Token: "a-token"}))
	defer server.Close()
	t.Setenv(httpstore.TokenEnv, "a-token")
	if _, err := blobstore.Put(t.Context(), open(t, server.URL).Store, []byte("x")); err != nil {
		t.Error(err)
	}
	s, err := storeurl.Open(t.Context(), server.URL, storeurl.Options{Token: func(kind storeurl.Kind, place string) (string, error) {
		if kind != storeurl.HTTP || place != server.URL {
			t.Errorf("a token for %s %s", kind, place)
		}
		return "another", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := blobstore.Put(t.Context(), s.Store, []byte("x")); err == nil || strings.Contains(err.Error(), "another") && !strings.Contains(err.Error(), "bearer") {
		t.Errorf("with another token: %v", err)
	}
}

func TestAPeerThatIsNotThereIsKnownAtOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody listens there now
	s := open(t, "kv:http://"+l.Addr().String()).Store
	data := []byte("a blob")
	_, getErr := s.Get(t.Context(), blobref.Of(data))
	for name, err := range map[string]error{"Get": getErr, "Set": s.Set(t.Context(), blobref.Of(data), data)} {
		if !errors.Is(err, blobstore.ErrUnavailable) || errors.Is(err, kv.ErrTimeout) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s = %v, want ErrUnavailable and that the connection was refused, before any timeout", name, err)
		}
	}
}

func TestThatOthersMayReadThePassphrasesIsReported(t *testing.T) {
	key := passphrase(t)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	var told []string
	s, err := storeurl.Open(t.Context(), "mem:?encrypted=passphrase-file:"+key, storeurl.Options{
		Report: func(err error) { told = append(told, err.Error()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if want := "others than its owner may read " + key + " (mode 0644): run chmod 600 on it"; len(told) != 1 || told[0] != want {
		t.Errorf("told %q, want %q", told, want)
	}
}
