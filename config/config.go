// Package config reads the settings of a home, the file config.json in it:
//
//	{
//	  "quota": {
//	    "session": {"log": "1GB", "artifacts": "20GB", "blobs": "2GB"},
//	    "home": {"log": "50GB", "artifacts": "200GB", "blobs": "20GB"}
//	  },
//	  "retention": {"sessions": "90d", "trash": "30d"},
//	  "sandbox": {
//	    "mode": "workspace", "net": "off",
//	    "limits": {"memory": "4GB", "processes": 500, "cpu": "10m", "file": "1GB", "disk": "10GB"}
//	  },
//	  "redact": {"mode": "reversible", "recipient": "age1..."},
//	  "ssh": {"hosts": ["build-*"], "program": "ssh", "config": "/home/me/.ssh/config"},
//	  "models": {
//	    "anthropic": {"url": "https://api.anthropic.com"},
//	    "openai": {"url": "http://localhost:8080/v1", "api": "chat"}
//	  },
//	  "agent": {"compact": {"mode": "on", "threshold": 150000}},
//	  "hooks": [{"on": "before-tool", "tool": "bash", "command": "./check"}]
//	}
//
// Every member may be left out, and so may the file: there is no limit then, and
// nothing is ever removed. A [Size] is a number of bytes or a string such as "500MB", in steps of 1024. An
// [Age] is a string such as "90d" or "12h".
//
// agentrun never writes the file. A member that it does not know is an [Unknown]: the
// rest counts, so that a slip stops nobody, and a person is told, because a limit that is
// misspelt is none. A file that is no JSON, or a setting with a value that is none, is an
// error, and nothing is kept or removed until it is mended: there is a limit, and nobody
// knows which. The file is read when a home is opened for work; a change counts for
// processes that start after it.
package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/redact"
)

// Config are the settings of a home. The zero value is that of a home without a
// file.
type Config struct {
	Quota     Quota
	Retention Retention
	Sandbox   Sandbox
	SSH       SSH
	Redact    Redact
	Models    Models
	Agent     Agent
	Hooks     Hooks
}

// Agent says how agents work.
type Agent struct {
	Compact Compact
}

// Compact says when the context of an agent is made shorter.
type Compact struct {
	Mode      Switch // off is never; "" is on
	Threshold Count  // tokens; 0 is what suits the model
}

// Models says where the providers of models are.
type Models struct {
	Anthropic, OpenAI Provider
}

// Provider is one provider of models, or a server that speaks like it.
type Provider struct {
	URL Text // "" is that of the environment, or the provider's own
	API Text // of OpenAI: responses or chat; "" is what fits the URL
}

// Redact says whether secrets in what is kept are replaced, where no flag and no variable says otherwise.
type Redact struct {
	Mode      redact.Mode // off, on, reversible
	Recipient string      // of age, for reversible; "" is the identity of the home
}

// Sandbox is what commands may do where no flag says otherwise. The zero value is everything.
type Sandbox struct {
	Mode   Mode   // off, read-only, workspace
	Net    Switch // on, off
	Limits SandboxLimits
}

// SandboxLimits bound what a command and all that it starts take; 0 is no limit.
type SandboxLimits struct {
	Memory    Size
	Processes Count
	CPU       Age
	File      Size // each file that is written
	Disk      Size // all that is written
}

// SSH says how other hosts are reached.
type SSH struct {
	Hosts   Hosts // those that a model may reach; none without it
	Program Text  // the client; "" is ssh of the PATH
	Config  Text  // what the client reads in place of the user's configuration; "" is that
}

// Quota limits what may be kept. 0 is no limit.
type Quota struct {
	Session Limits // of each session
	Home    Limits // of all sessions of the home together
}

// Limits are the limits of one scope, in bytes; 0 is none.
type Limits struct {
	Log       Size // session logs
	Artifacts Size // directories of artifacts, with what agents handed back and their sessions
	Blobs     Size // images and long strings; of a session those that it cites
}

// Retention says what gc may take away because it is old. 0 is never.
type Retention struct {
	Sessions Age // since a session was last written to; it goes to the trash
	Trash    Age // since a session was removed
}

// IsZero reports whether there is no limit at all.
func (q Quota) IsZero() bool { return q == Quota{} }

// name is the file's name in the home.
const name = "config.json"

// maxFile bounds the file, in bytes.
const maxFile = 64 << 10

// Path is where the settings of a home are.
func Path(home string) string { return filepath.Join(home, name) }

// Load reads the settings of a home. A file that is not there is no error. One that
// cannot be read, and a value that is none, are, and the sentence says where. fsys may
// be nil.
func Load(fsys durable.FS, home string) (Config, []Unknown, error) {
	if fsys == nil {
		fsys = durable.OS
	}
	data, err := durable.ReadFile(fsys, Path(home), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Config{}, nil, nil
	}
	var c Config
	var unknown []Unknown
	if err == nil {
		c, unknown, err = Parse(data)
	}
	if err != nil {
		return Config{}, nil, fmt.Errorf("reading the settings %s: %w", Path(home), err)
	}
	for i := range unknown {
		unknown[i].File = Path(home)
	}
	return c, unknown, nil
}

// Parse reads settings from the text of a file.
func Parse(data []byte) (Config, []Unknown, error) {
	var c Config
	limits := func(l *Limits) members {
		return members{"log": &l.Log, "artifacts": &l.Artifacts, "blobs": &l.Blobs}
	}
	r := reader{text: data, all: members{
		"quota": members{"session": limits(&c.Quota.Session), "home": limits(&c.Quota.Home)},
		"sandbox": members{"mode": &c.Sandbox.Mode, "net": &c.Sandbox.Net, "limits": members{
			"memory": &c.Sandbox.Limits.Memory, "processes": &c.Sandbox.Limits.Processes, "cpu": &c.Sandbox.Limits.CPU,
			"file": &c.Sandbox.Limits.File, "disk": &c.Sandbox.Limits.Disk,
		}},
		"redact":    members{"mode": &c.Redact.Mode, "recipient": &c.Redact.Recipient},
		"retention": members{"sessions": &c.Retention.Sessions, "trash": &c.Retention.Trash},
		"models": members{
			"anthropic": members{"url": &c.Models.Anthropic.URL},
			"openai":    members{"url": &c.Models.OpenAI.URL, "api": &c.Models.OpenAI.API},
		},
		"agent": members{"compact": members{"mode": &c.Agent.Compact.Mode, "threshold": &c.Agent.Compact.Threshold}},
		"hooks": &c.Hooks,
		"ssh":   members{"hosts": &c.SSH.Hosts, "program": &c.SSH.Program, "config": &c.SSH.Config},
	}}
	if err := r.read(r.all, "", 0, int64(len(data))); err != nil {
		return Config{}, nil, err
	}
	return c, r.unknown, nil
}

// members are what an object may hold: members for an object, else something that
// reads its own JSON.
type members map[string]any

// reader reads one file.
type reader struct {
	text    []byte
	all     members
	unknown []Unknown
}

// read fills m from the object that stands in text[from:to]. path names it, "" for the
// whole file.
func (r *reader) read(m members, path string, from, to int64) error {
	what := path
	if path == "" {
		what = "the file"
	}
	data := r.text[from:to]
	dec := json.NewDecoder(bytes.NewReader(data))
	fail := func(format string, args ...any) error {
		return mistake(r.text, from+dec.InputOffset(), fmt.Errorf(format, args...))
	}
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return mistake(r.text, from, fmt.Errorf("%s is no JSON object", what))
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return fail("%s is no JSON: %w", what, err)
		}
		key, _ := t.(string) // a key always is
		at := strings.TrimPrefix(path+"."+key, ".")
		line := lineAt(r.text, from+dec.InputOffset())
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return fail("%s is no JSON: %w", at, err)
		}
		into, known := m[key]
		switch {
		case !known:
			r.unknown = append(r.unknown, Unknown{Line: line, Key: at, Like: like(at, r.all.keys("")), may: m.names()})
			continue
		case seen[key]:
			return fail("%q is there twice: keep one of them", at)
		}
		seen[key] = true
		if inner, ok := into.(members); ok {
			end := from + dec.InputOffset()
			err = r.read(inner, at, end-int64(len(value)), end)
		} else if err = json.Unmarshal(value, into); err != nil {
			err = fail("%s: %w", at, err)
		}
		if err != nil {
			return err
		}
	}
	if _, err := dec.Token(); err != nil {
		return fail("%s is no whole JSON object", what)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fail("there is something behind the object of %s", what)
	}
	return nil
}

func (m members) names() string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
