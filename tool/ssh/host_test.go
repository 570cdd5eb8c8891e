package ssh

import (
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		args     string // with spaces between them; "" is refused
	}{
		{"a name", "build", "-- build"},
		{"a name keeps its case", "Build.Example_1", "-- Build.Example_1"},
		{"a user", "me+x@build", "-l me+x -- build"},
		{"a port", "me@build:2222", "-l me -p 2222 -- build"},
		{"an address", "192.0.2.7:22", "-p 22 -- 192.0.2.7"},
		{"an address of IPv6", "fe80::1", "-- fe80::1"},
		{"an address of IPv6 with a port", "me@[::1]:22", "-l me -p 22 -- ::1"},
		{"nothing", "", ""},
		{"an option", "-oProxyCommand=x", ""},
		{"an option as the name", "me@-oProxyCommand=x", ""},
		{"an option as the user", "-oProxyCommand=x@build", ""},
		{"a user of nothing", "@build", ""},
		{"a name of nothing", "me@", ""},
		{"two users", "a@b@c", ""},
		{"a space", "build x", ""},
		{"a newline", "build\nHost x", ""},
		{"a NUL byte", "build\x00", ""},
		{"what a shell runs", "$(id)", ""},
		{"what a shell runs, in quotes", "`id`", ""},
		{"two commands", "a;id", ""},
		{"a token of ssh_config", "%h", ""},
		{"a path", "../build", ""},
		{"a URL", "ssh://build", ""},
		{"a pattern", "build*", ""},
		{"letters of elsewhere", "büild", ""},
		{"bytes of nothing", "\xff", ""},
		{"a port of nothing", "build:", ""},
		{"a port of zero", "build:0", ""},
		{"a port with a sign", "build:+22", ""},
		{"a port that is too large", "build:65536", ""},
		{"a bracket that stays open", "[::1", ""},
		{"something behind a bracket", "[::1]x", ""},
		{"a name that is too long", strings.Repeat("a", 400), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, err := ParseHost(tt.in)
			if got := strings.Join(h.args(), " "); tt.args != "" && (err != nil || got != tt.args) || tt.args == "" && err == nil {
				t.Errorf("%q, %v; want %q", got, err, tt.args)
			}
		})
	}
}

func TestPatternsAllowWhatTheyName(t *testing.T) {
	for _, tt := range []struct {
		name, patterns, host string
		want                 bool
	}{
		{"nothing allows nothing", "", "build", false},
		{"a name allows itself", "build", "build", true},
		{"a name allows itself in another case", "build", "BUILD", true},
		{"a name allows no user that the configuration does not give", "build", "root@build", false},
		{"a name allows no port that the configuration does not give", "build", "build:22", false},
		{"a name allows no beginning", "build", "build2", false},
		{"a star stands for letters", "build-*", "build-17.example.com", true},
		{"a star for names is not one for users", "*", "root@build", false},
		{"a star for users", "*@build", "root@build", true},
		{"a star for users allows no host without one", "*@build", "build", false},
		{"a user allows itself", "me@build:2222", "me@build:2222", true},
		{"one of several", "a,b,c?", "c1", true},
		{"a question mark stands for one letter", "c?", "c12", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var list []string
			if tt.patterns != "" {
				list = strings.Split(tt.patterns, ",")
			}
			p, err := ParsePatterns(list)
			if err != nil {
				t.Fatal(err)
			}
			h, err := ParseHost(tt.host)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Allow(h); got != tt.want {
				t.Errorf("%v of %v: %v", tt.patterns, h, got)
			}
		})
	}
	if _, err := ParsePatterns([]string{"a", "b[c]"}); err == nil {
		t.Error("brackets are no pattern")
	}
}

func FuzzParseHost(f *testing.F) {
	for _, s := range []string{"build", "me@build:22", "[::1]:22", "-oProxyCommand=x", "a@b@c", "a%h", "fe80::1", "a\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHost(s)
		if err != nil {
			if h != (Host{}) {
				t.Errorf("%q is refused and is %v", s, h)
			}
			return
		}
		if again, err := ParseHost(h.String()); err != nil || again != h {
			t.Errorf("%q is %v, which is %v, %v", s, h, again, err)
		}
		args := h.args()
		for i, a := range args {
			if strings.ContainsAny(a, " \t\r\n\x00'\"`$\\;&|<>(){}[]*?!#~%=,") || a == "" {
				t.Errorf("%q has the argument %q", s, a)
			}
			if strings.HasPrefix(a, "-") && a != "-l" && a != "-p" && (a != "--" || i != len(args)-2) {
				t.Errorf("%q has the option %q", s, a)
			}
		}
		p, err := ParsePatterns([]string{h.String()})
		if err != nil || !p.Allow(h) {
			t.Errorf("the pattern %v does not allow it: %v", h, err)
		}
	})
}

// What it said: OpenSSH_9.2p1.
func TestWhatASshSaidLastOfTheReasonIsTold(t *testing.T) {
	const ended = "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by UNKNOWN port 65535\r\n"
	for _, tt := range []struct{ name, log, want string }{
		{"nothing", "\n", "ssh did not say why"},
		{"of one host", "ssh: connect to host build port 22: Connection refused\r\n", "ssh: connect to host build port 22: Connection refused"},
		{"of the host to jump from", "ssh: Could not resolve hostname jump: Name or service not known\r\n" + ended, "ssh: Could not resolve hostname jump: Name or service not known"},
		{"of a way that says nothing", ended, "Connection closed by UNKNOWN port 65535"},
	} {
		if got := last(tt.log); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
