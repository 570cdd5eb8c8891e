package storeurl_test

import (
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentrun/agentrun/storeurl"
)

func TestAStoreURLIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]storeurl.URL{
		"dir:blobs":                              {Kind: storeurl.Dir, Place: "blobs"},
		"dir:/a b/c":                             {Kind: storeurl.Dir, Place: "/a b/c"},
		"dir:///a/c":                             {Kind: storeurl.Dir, Place: "///a/c"},
		"dir:a%3Fb%25+c#d":                       {Kind: storeurl.Dir, Place: "a?b%+c#d"},
		"diskkv:state.vscdb":                     {Kind: storeurl.DiskKV, Place: "state.vscdb"},
		"mem:":                                   {Kind: storeurl.Memory},
		"mem:?":                                  {Kind: storeurl.Memory},
		"kv:http://127.0.0.1:4711":               {Kind: storeurl.KV, Place: "http://127.0.0.1:4711"},
		"kv:https://example.com/":                {Kind: storeurl.KV, Place: "https://example.com"},
		"https://example.com/store/":             {Kind: storeurl.HTTPS, Place: "https://example.com/store"},
		"http://localhost:1?retry=on":            {Kind: storeurl.HTTP, Place: "http://localhost:1", Retry: true},
		"s3://our-blobs/a/b?region=eu-central-1": {Kind: storeurl.S3, Place: "our-blobs/a/b", Region: "eu-central-1"},
		"s3://b?endpoint=http://127.0.0.1:7070&cached=64MiB": {Kind: storeurl.S3, Place: "b", Endpoint: "http://127.0.0.1:7070", CachedBytes: 64 << 20},
		"dir:d?form=seed&encrypted=passphrase-file:/k":       {Kind: storeurl.Dir, Place: "d", PassphraseFile: "/k", SeedForm: true},
		"dir:d?cached=1":  {Kind: storeurl.Dir, Place: "d", CachedBytes: 1},
		"dir:d?cached=3B": {Kind: storeurl.Dir, Place: "d", CachedBytes: 3},
		"dir:d?remote=https%3A%2F%2Fh%2Fp%3Fretry%3Don&cached=2GiB": {
			Kind: storeurl.Dir, Place: "d", CachedBytes: 2 << 30,
			Remote: &storeurl.URL{Kind: storeurl.HTTPS, Place: "https://h/p", Retry: true},
		},
		"dir:d?remote=s3://b&encrypted=passphrase-file:k": {Kind: storeurl.Dir, Place: "d", PassphraseFile: "k", Remote: &storeurl.URL{Kind: storeurl.S3, Place: "b"}},
	} {
		got, err := storeurl.Parse(text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
		if again, err := storeurl.Parse(got.String()); err != nil || !reflect.DeepEqual(again, got) {
			t.Errorf("%q is written as %q, which is %+v, %v", text, got, again, err)
		}
	}
}

func TestAStoreURLThatIsNoneIsRefusedWithASentence(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "begins with none of dir:, diskkv:, kv:, http:, https:, s3: and mem:",
		"blobs":                             "a directory is dir:PATH",
		"./blobs":                           "a directory is dir:PATH",
		"ftp://x":                           "begins with none of",
		"dir:":                              "wants a path",
		"dir://host/p":                      "has no host",
		"dir:a%zz":                          "%25",
		"dir:a%00":                          "byte 0",
		"dir:a\nb":                          "control characters",
		"mem:x":                             "no place",
		"kv:unix:/x":                        "want kv:http",
		"kv:http://h/p":                     "without a path",
		"kv:http://":                        "want http://HOST",
		"http:h":                            "want http://HOST",
		"http://":                           "want http://HOST",
		"http://h/#x":                       "behind #",
		"http://user:secret@h/":             "user or password",
		"https://exa mple:secret@h/":        "want https://HOST",
		"kv:http://user:secret@h":           "user or password",
		"s3:bucket":                         "want s3://BUCKET",
		"s3://":                             "want s3://BUCKET",
		"s3:///x":                           "want s3://BUCKET",
		"s3://key:secret@bucket":            "AWS_ACCESS_KEY_ID",
		"s3://b?endpoint=http://k:secret@h": "user or password",
		"s3://b?endpoint=h:80":              "want https://HOST",
		"s3://b?region=a/b":                 "a region is",
		"dir:d?x=1":                         `no parameter "x" for dir:, but encrypted=, form=, cached=, retry= and remote=`,
		"dir:d?endpoint=http://h":           "no parameter",
		"s3://b?x=1":                        "endpoint=, region=, encrypted=",
		"dir:d?retry=on&retry=on":           "twice",
		"dir:d?retry=off":                   "there is retry=on",
		"dir:d?retry":                       "no value",
		"dir:d?retry=on&":                   "no parameter",
		"dir:d?encrypted=secret":            "never an argument",
		"dir:d?encrypted=passphrase-file:":  "never an argument",
		"dir:d?form=seed":                   "wants encrypted=",
		"dir:d?form=own&encrypted=passphrase-file:f": "form=seed",
		"dir:d?cached=0":                    "64MiB",
		"dir:d?cached=-1":                   "64MiB",
		"dir:d?cached=+1":                   "64MiB",
		"dir:d?cached=1MB":                  "64MiB",
		"dir:d?cached=MiB":                  "64MiB",
		"dir:d?cached=9999999TiB":           "64MiB",
		"dir:d?remote=x":                    "begins with none of",
		"https://h?remote=dir:d":            "on this machine",
		"dir:d?remote=dir:e%3Fremote=dir:f": "no remote of its own",
		"dir:d?remote=dir:e%3Fcached=1":     "behind the cache",
		"dir:d?encrypted=passphrase-file:a&remote=dir:e%3Fencrypted=passphrase-file:b": "encrypted already",
		"dir:" + strings.Repeat("x", storeurl.MaxLen):                                  "bytes",
	} {
		u, err := storeurl.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100q is %+v, %v; want a sentence with %q", text, u, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%v", err)
		}
	}
}

// urls makes any URL that there is.
func urls(depth int) *rapid.Generator[storeurl.URL] {
	return rapid.Custom(func(t *rapid.T) storeurl.URL {
		path := rapid.StringMatching(`[a-zA-Z0-9 _%?&#+=@:"'\\äß-][/a-zA-Z0-9 _%?&#+=@:"'\\äß-]{0,20}`)
		server := rapid.StringMatching(`https?://[a-z0-9]{1,9}(:[1-9][0-9]{0,3})?`)
		u := storeurl.URL{Kind: rapid.SampledFrom([]storeurl.Kind{storeurl.Dir, storeurl.DiskKV, storeurl.KV, storeurl.HTTP, storeurl.HTTPS, storeurl.S3, storeurl.Memory}).Draw(t, "kind")}
		switch u.Kind {
		case storeurl.Dir, storeurl.DiskKV:
			u.Place = path.Draw(t, "path")
		case storeurl.KV:
			u.Place = server.Draw(t, "server")
		case storeurl.HTTP, storeurl.HTTPS:
			u.Place = rapid.StringMatching(string(u.Kind)+`://[a-z0-9]{1,9}(:[1-9][0-9]{0,3})?(/[a-z]{1,5}){0,3}`).Draw(t, "server")
		case storeurl.S3:
			u.Place = rapid.StringMatching(`[a-z0-9]{3,9}(/[a-zA-Z0-9 _?&=%+-]{1,5}){0,3}`).Draw(t, "bucket")
			if rapid.Bool().Draw(t, "elsewhere") {
				u.Endpoint = server.Draw(t, "endpoint")
			}
			u.Region = rapid.StringMatching(`([a-z0-9-]{1,9})?`).Draw(t, "region")
		}
		if rapid.Bool().Draw(t, "encrypted") {
			u.PassphraseFile = path.Draw(t, "file")
			u.SeedForm = rapid.Bool().Draw(t, "seed")
		}
		if depth == 0 && rapid.Bool().Draw(t, "cached") {
			u.CachedBytes = rapid.Int64Range(1, 1<<40).Draw(t, "bytes")
		}
		u.Retry = rapid.Bool().Draw(t, "retry")
		local := u.Kind == storeurl.Dir || u.Kind == storeurl.DiskKV || u.Kind == storeurl.Memory
		if depth == 0 && local && rapid.Bool().Draw(t, "remote") {
			remote := urls(1).Draw(t, "remote")
			if u.PassphraseFile != "" {
				remote.PassphraseFile, remote.SeedForm = "", false
			}
			u.Remote = &remote
		}
		return u
	})
}

func TestAURLThatIsWrittenIsReadAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := urls(0).Draw(t, "url")
		got, err := storeurl.Parse(want.String())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v is written %s and read as %+v, %v", want, want, got, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"dir:a%3Fb?cached=64MiB&encrypted=passphrase-file:k&form=seed&retry=on&remote=https%3A%2F%2Fh%3Fretry%3Don",
		"s3://b/p?endpoint=http://127.0.0.1:1&region=us-east-1", "kv:http://[::1]:1", "mem:", "diskkv:/a b",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := storeurl.Parse(text)
		if err != nil {
			return
		}
		again, err := storeurl.Parse(u.String())
		if err != nil || !reflect.DeepEqual(again, u) || again.String() != u.String() {
			t.Errorf("%q is %+v, written %s, and read as %+v, %v", text, u, u, again, err)
		}
	})
}
