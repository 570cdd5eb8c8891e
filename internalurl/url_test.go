package internalurl

import (
	"reflect"
	"strings"
	"testing"
)

const (
	sid    = "01a1fa9b-9d2c-7c3e-8a4f-0123456789ab"
	someID = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

func TestParseReadsTheCanonicalFormBack(t *testing.T) {
	cases := map[string]string{
		"artifact://0":                           "",
		"artifact://12:3":                        "",
		"ARTIFACT://12":                          "artifact://12",
		"artifact://12/":                         "artifact://12",
		"artifact://0:10-20":                     "",
		"artifact://0:10+5":                      "artifact://0:10-14",
		"artifact://0:10+1":                      "",
		"artifact://0:10-":                       "artifact://0:10",
		"artifact://0:10..20":                    "artifact://0:10-20",
		"artifact://0:L10-L20":                   "artifact://0:10-20",
		"artifact://0:-5":                        "",
		"artifact://0:raw":                       "",
		"artifact://0:RAW":                       "artifact://0:raw",
		"artifact://0:raw:1-2":                   "",
		"artifact://0:1-2:raw":                   "artifact://0:raw:1-2",
		"artifact://0:raw:-3":                    "",
		"artifact://0:8-9,1-3,2-5":               "artifact://0:1-5,8-9",
		"artifact://0:1-3,4-5":                   "artifact://0:1-5",
		"artifact://0:5,1-2":                     "artifact://0:1-2,5",
		"artifact://0:1-99999999999999999999":    "artifact://0:1",
		"artifact://" + sid + "/3:1-2":           "",
		"artifact://9223372036854775806":         "",
		"agent://0-Parent.1-Child":               "",
		"agent://Anna.v2":                        "",
		"agent://Anna/Bob":                       "",
		"agent://Anna/Bob:3-4":                   "",
		"agent://Anna/a%20b/0":                   "",
		"agent://Anna/a%3A1":                     "",
		"agent://Anna/a:b":                       "agent://Anna/a%3Ab",
		"agent://Anna?q=.a%5B0%5D":               "",
		"agent://Anna?q=.a[0][\"k\"]":            "agent://Anna?q=.a%5B0%5D%5B%22k%22%5D",
		"agent://Anna?q=":                        "agent://Anna",
		"agent://" + sid + "/Anna":               "",
		"agent://" + sid + "/Anna?q=.a":          "",
		"session://" + sid:                       "",
		"session://" + sid + "/ab12cd34":         "",
		"session://0123456789abcdef":             "",
		"session://" + sid + "/" + sid:           "",
		"blob://sha256/" + someID:                "",
		"blob://sha256/" + someID + ":raw":       "",
		"blob:sha256:" + someID:                  "blob://sha256/" + someID,
		"blob:sha256:" + someID + ":1-2":         "blob://sha256/" + someID + ":1-2",
		"job://0":                                "",
		"artifact://0:raw:9223372036854775807":   "",
		"artifact://0:9223372036854775806-":      "artifact://0:9223372036854775806",
		"artifact://0:9223372036854775806+9":     "artifact://0:9223372036854775806",
		"artifact://0:1-3, 8-9":                  "artifact://0:1-3,8-9",
		"agent://Anna/" + strings.Repeat("a", 9): "",
	}
	for in, want := range cases {
		if want == "" {
			want = in
		}
		u, err := Parse(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := u.String(); got != want {
			t.Errorf("%s: is %s, want %s", in, got, want)
		}
	}
}

func TestParseRefusesWithASentence(t *testing.T) {
	cases := map[string]string{
		"artifact://":                               "artifact:// URL requires a numeric ID: artifact://0",
		"artifact://x":                              "artifact:// ID must be numeric, got: x",
		"artifact://-1":                             "artifact:// ID must be numeric, got: -1",
		"artifact://07":                             "artifact:// ID must have no leading zeros, got: 07",
		"artifact://99999999999999999999":           "artifact:// ID is too large, got: 99999999999999999999",
		"artifact://9223372036854775807":            "artifact:// ID is too large, got: 9223372036854775807",
		"artifact://3/../4":                         "Path traversal",
		"artifact://3/4":                            "is not a UUID",
		"artifact://1/2/3":                          "too many parts",
		"artifact://0?q=.a":                         "takes no query",
		"artifact://0#L1":                           "fragment",
		"artifact://0:0":                            "Line selector 0 is invalid; lines are 1-indexed. Use :1.",
		"artifact://0:5-3":                          "Invalid range 5-3: end must be >= start.",
		"artifact://0:5+0":                          "Invalid range 5+0: count must be >= 1.",
		"artifact://0:-0":                           "Tail selector -0 is invalid",
		"artifact://0:x":                            "Invalid selector ':x'. Use ",
		"artifact://0:":                             "Invalid selector ':'. Use ",
		"artifact://0:1,":                           "Invalid selector ':1,'. Use ",
		"artifact://0:raw:raw":                      "Invalid selector ':raw:raw'. Use ",
		"artifact://0:1:2":                          "Invalid selector ':1:2'. Use ",
		"artifact://0:1:raw:2":                      "Invalid selector ':1:raw:2'. Use ",
		"artifact://0:1-2-3":                        "Invalid selector",
		"artifact://0:5+":                           "Invalid selector",
		"artifact://0:raw:0":                        "Line selector 0",
		"artifact://0\x00":                          "control character",
		"artifact://0%00":                           "NUL",
		"artifact://" + strings.ToUpper(sid) + "/0": "not in lower case",
		"agent://":                                  "agent:// URL requires an output ID: agent://<id>",
		"agent:///x":                                "agent:// URL requires an output ID: agent://<id>",
		"agent://../x":                              "Path traversal (..) is not allowed",
		"agent://x/..":                              "Path traversal",
		"agent://x/%2e%2e":                          "Path traversal",
		"agent://x//y":                              "empty",
		"agent://a%2Fb":                             "encoded slash",
		"agent://x/a%2Fb":                           "encoded slash",
		"agent://a%5Cb":                             "backslash",
		"agent://a%zz":                              "percent-encoded",
		"agent://a b":                               "may hold only",
		"agent://.":                                 "Path traversal",
		"agent://a..b":                              "a name is empty",
		"agent://_hidden":                           "must begin with a letter or digit",
		"agent://v2":                                "reads as a version",
		"agent://a.v0":                              "no such version",
		"agent://" + strings.Repeat("a", 201):       "at most 200",
		"agent://" + strings.ToUpper(sid) + "/x":    "not in lower case",
		"agent://" + sid:                            "agent:// URL requires an output ID",
		"agent://x/a?q=.b":                          "cannot combine path extraction with ?q=",
		"agent://x?q=.a&b=1":                        "one query parameter",
		"agent://x?p=.a":                            "one query parameter",
		"agent://x?q=[":                             "Invalid query: missing ] in [",
		"agent://x?q=.a[]":                          "Invalid query: empty [] in .a[]",
		"agent://x?q=.a b":                          "Invalid query: unexpected token ' ' in .a b",
		"agent://x?q=a%00":                          "NUL",
		"session://":                                "requires a session ID",
		"session://x":                               "is not a UUID",
		"session://" + strings.ToUpper(sid):         "not in lower case",
		"session://" + sid + "/a/b":                 "requires a session ID",
		"session://" + sid + "/" + strings.Repeat("a", 201): "at most 200",
		"blob://sha256/":                           "requires a SHA-256",
		"blob://sha256/" + someID[1:]:              "requires 64 lower-case hex digits, got 63",
		"blob://sha256/" + strings.ToUpper(someID): "requires 64 lower-case hex digits",
		"blob://md5/" + someID:                     "requires a SHA-256",
		"memory://root":                            "Unknown protocol: memory://\nSupported: agent://, artifact://, blob://, job://, session://",
		"file:///etc/hosts":                        "session://\nName a file by its path alone",
		"job://":                                   "requires the number of a job",
		"job://x":                                  "requires the number of a job",
		"job://1/2":                                "requires the number of a job",
		"blob:sha256:" + someID[1:]:                "requires 64 lower-case hex digits, got 63",
		"file.txt":                                 "is not a URL",
		"artifact://" + strings.Repeat("0", MaxLen): "too long",
	}
	for in, want := range cases {
		if u, err := Parse(in); err == nil {
			t.Errorf("%.80s: parsed as %v", in, u)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, want %q", in, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"artifact://0:10-20", "artifact://" + sid + "/1:raw:-5", "agent://Anna/a%20b/0", "agent://Anna.v2?q=.a[0]['k']",
		"agent://../x", "agent://a%2Fb", "session://" + sid + "/ab12", "blob://sha256/" + someID + ":1,5-9",
		"agent://Anna/x:raw", "artifact://0:-0", "x://", "agent://A/%:1", "agent://A?q=%5B'%5C''%5D",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := Parse(raw)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a sentence")
			}
			return
		}
		s := u.String()
		again, err := Parse(s)
		if err != nil {
			t.Fatalf("%q became %q, which is refused: %v", raw, s, err)
		}
		if !reflect.DeepEqual(u, again) {
			t.Fatalf("%q became %q, which is another URL:\n%+v\n%+v", raw, s, u, again)
		}
		for _, segment := range append([]string{u.Agent.String(), u.Session, u.Entry}, u.Path...) {
			if segment == ".." || strings.ContainsAny(segment, "/\\\x00") {
				t.Fatalf("%q let %q through", raw, segment)
			}
		}
	})
}
