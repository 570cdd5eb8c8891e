package config_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentrun/agentrun/config"
)

const day = config.Age(24 * time.Hour)

func TestSettingsAreReadOrRefusedWithASentence(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       config.Config
		err        string // part of it; "" when there is none
	}{
		{"an empty object limits nothing", `{}`, config.Config{}, ""},
		{"sizes are numbers or words", `{"quota":{"session":{"log":1024,"artifacts":"1.5GB"},"home":{"blobs":"2 TiB"}}}`, config.Config{
			Quota: config.Quota{Session: config.Limits{Log: 1024, Artifacts: 3 << 29}, Home: config.Limits{Blobs: 2 << 40}},
		}, ""},
		{"ages are days, weeks or hours", `{"retention":{"sessions":"90d","trash":"36h"}}`, config.Config{
			Retention: config.Retention{Sessions: 90 * day, Trash: 3 * day / 2},
		}, ""},
		{"an unknown member is named with those there are", `{"quota":{"sesion":{}}}`, config.Config{}, `"quota.sesion" is no setting: quota may hold home, session`},
		{"so is one at the top", `{"quotas":{}}`, config.Config{}, `"quotas" is no setting: the file may hold quota, retention`},
		{"a member that is there twice is refused", `{"retention":{"trash":"1d","trash":"2d"}}`, config.Config{}, `"retention.trash" is there twice`},
		{"a limit of nothing is refused", `{"quota":{"home":{"log":0}}}`, config.Config{}, "quota.home.log: give a size above 0"},
		{"a negative limit is refused", `{"quota":{"home":{"log":-1}}}`, config.Config{}, "give a size above 0"},
		{"null is no size", `{"quota":{"home":{"log":null}}}`, config.Config{}, "quota.home.log: give a size"},
		{"a size beyond 63 bits is refused", `{"quota":{"home":{"log":"9999999999999TB"}}}`, config.Config{}, "give a size"},
		{"an age without a unit is refused", `{"retention":{"trash":30}}`, config.Config{}, "retention.trash: give a time"},
		{"something behind the object is refused", `{} {}`, config.Config{}, "something behind"},
		{"an object that is cut off is refused", `{"quota":{"home":{"log":1}`, config.Config{}, "no JSON"},
		{"a list is refused", `[]`, config.Config{}, "the file is no JSON object"},
		{"an empty file is refused", ``, config.Config{}, "the file is no JSON object"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := config.Parse([]byte(tt.text))
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
	c, err := config.Load(nil, home)
	if err != nil || c != (config.Config{}) || !c.Quota.IsZero() {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestAnErrorNamesTheFile(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(config.Path(home), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := config.Load(nil, home); err == nil || !strings.Contains(err.Error(), config.Path(home)) {
		t.Errorf("error %v does not name %s", err, config.Path(home))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"quota":{"session":{"log":"1GB"},"home":{"blobs":12}},"retention":{"trash":"30d"}}`)
	f.Add(`{"quota":{"home":{"log":1e3}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Parse([]byte(text))
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
