package config_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/redact"
)

const day = config.Age(24 * time.Hour)

func TestSettingsAreReadOrRefusedWithASentence(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       config.Config
		err        string // part of it; "" when there is none
	}{
		{"an unknown member leaves the others as they are", "{\"quota\":{\n\"hme\":{\"log\":{}},\"session\":{\"log\":7}}}", config.Config{Quota: config.Quota{Session: config.Limits{Log: 7}}}, ""},
		{"an empty object limits nothing", `{}`, config.Config{}, ""},
		{"sizes are numbers or words", `{"quota":{"session":{"log":1024,"artifacts":"1.5GB"},"home":{"blobs":"2 TiB"}}}`, config.Config{
			Quota: config.Quota{Session: config.Limits{Log: 1024, Artifacts: 3 << 29}, Home: config.Limits{Blobs: 2 << 40}},
		}, ""},
		{"ages are days, weeks or hours", `{"retention":{"sessions":"90d","trash":"36h"}}`, config.Config{
			Retention: config.Retention{Sessions: 90 * day, Trash: 3 * day / 2},
		}, ""},
		{"redaction has a mode and a recipient", `{"redact":{"mode":"reversible","recipient":"age1x"}}`, config.Config{
			Redact: config.Redact{Mode: redact.Reversible, Recipient: "age1x"},
		}, ""},
		{"a mode of redaction that is none is refused", `{"redact":{"mode":"yes"}}`, config.Config{}, "redact.mode: give off, on or reversible"},
		{"a member that is there twice is refused", "{\n\"retention\":{\"trash\":\"1d\",\n\"trash\":\"2d\"}}", config.Config{}, `line 3: "retention.trash" is there twice`},
		{"a limit of nothing is refused", "{\"quota\":\n\n{\"home\":{\"log\":0}}}", config.Config{}, "line 3: quota.home.log: give a size above 0"},
		{"a negative limit is refused", `{"quota":{"home":{"log":-1}}}`, config.Config{}, "give a size above 0"},
		{"null is no size", `{"quota":{"home":{"log":null}}}`, config.Config{}, "quota.home.log: give a size"},
		{"a size beyond 63 bits is refused", `{"quota":{"home":{"log":"9999999999999TB"}}}`, config.Config{}, "give a size"},
		{"an age without a unit is refused", `{"retention":{"trash":30}}`, config.Config{}, "retention.trash: give a time"},
		{"hosts are patterns", `{"ssh":{"hosts":["build-*","*@[::1]:22"],"program":"/usr/bin/ssh","config":"c d"}}`, config.Config{
			SSH: config.SSH{Hosts: config.Hosts{"build-*", "*@[::1]:22"}, Program: "/usr/bin/ssh", Config: "c d"},
		}, ""},
		{"a host that is no word is refused", `{"ssh":{"hosts":["a","-oProxyCommand=x"]}}`, config.Config{}, "line 1: ssh.hosts: give a list of hosts"},
		{"hosts that are no list are refused", `{"ssh":{"hosts":"a"}}`, config.Config{}, "ssh.hosts: give a list"},
		{"providers of models have a URL and an API", `{"models":{"anthropic":{"url":"https://a"},"openai":{"url":"http://b/v1","api":"chat"}}}`, config.Config{
			Models: config.Models{Anthropic: config.Provider{URL: "https://a"}, OpenAI: config.Provider{URL: "http://b/v1", API: "chat"}},
		}, ""},
		{"compaction has a mode and a threshold", `{"agent":{"compact":{"mode":"off","threshold":5000}}}`, config.Config{
			Agent: config.Agent{Compact: config.Compact{Mode: "off", Threshold: 5000}},
		}, ""},
		{"a threshold that is no number is refused", `{"agent":{"compact":{"threshold":"much"}}}`, config.Config{}, "agent.compact.threshold: give a number"},
		{"a program without a name is refused", `{"ssh":{"program":""}}`, config.Config{}, "ssh.program: give a text"},
		{"something behind the object is refused", `{} {}`, config.Config{}, "something behind"},
		{"an object that is cut off is refused", `{"quota":{"home":{"log":1}`, config.Config{}, "no JSON"},
		{"a list is refused", `[]`, config.Config{}, "the file is no JSON object"},
		{"an empty file is refused", ``, config.Config{}, "the file is no JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := config.Parse([]byte(tt.text))
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Fatalf("error %v, want one with %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAHomeWithoutSettingsLimitsNothing(t *testing.T) {
	home := t.TempDir()
	c, _, err := config.Load(nil, home)
	if err != nil || !cmp.Equal(c, config.Config{}) || !c.Quota.IsZero() {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAnErrorNamesTheFile(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(config.Path(home), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := config.Load(nil, home); err == nil || !strings.Contains(err.Error(), config.Path(home)) {
		t.Errorf("error %v does not name %s", err, config.Path(home))
	}
}

func TestAnUnknownMemberIsToldWithItsPlaceAndTheSettingItMayMean(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a letter is missing", "{\n\"quota\": {\n  \"hme\": {\"log\": \"1GB\"}\n}}", `c.json:3: "quota.hme" is no setting and does nothing; did you mean quota.home?`},
		{"a letter too many", "{\"quotas\":{}}", `c.json:1: "quotas" is no setting and does nothing; did you mean quota?`},
		{"another case", "{\"quota\":{\"home\":{\"Log\":1}}}", `c.json:1: "quota.home.Log" is no setting and does nothing; did you mean quota.home.log?`},
		{"nothing is like it", "{\"quota\":{\"home\":{\"everything\":1}}}", `c.json:1: "quota.home.everything" is no setting and does nothing; there may be artifacts, blobs, log (agentrun help config)`},
		{"in a place below what there is", "{\n\n\"theme\":\"dark\"}", `c.json:3: "theme" is no setting and does nothing; there may be agent, hooks, models, quota, redact, retention, sandbox, ssh (agentrun help config)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, unknown, err := config.Parse([]byte(tt.text))
			if err != nil || len(unknown) != 1 {
				t.Fatalf("%v, %v", unknown, err)
			}
			unknown[0].File = "c.json"
			if got := unknown[0].String(); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"quota":{"session":{"log":"1GB"},"home":{"blobs":12}},"retention":{"trash":"30d"}}`)
	f.Add(`{"quota":{"home":{"log":1e3}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := config.Parse([]byte(text))
		if err != nil {
			return
		}
		for _, l := range []config.Limits{c.Quota.Session, c.Quota.Home} {
			if l.Log < 0 || l.Artifacts < 0 || l.Blobs < 0 {
				t.Errorf("negative limits %+v of %q", l, text)
			}
		}
		if c.Retention.Sessions < 0 || c.Retention.Trash < 0 {
			t.Errorf("negative ages %+v of %q", c.Retention, text)
		}
	})
}
