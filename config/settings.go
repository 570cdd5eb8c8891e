package config

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/agentrun/agentrun/outputsink"
)

// Setting is one value that is set.
type Setting struct {
	Key   string `json:"key"`   // quota.home.log
	Value any    `json:"value"` // a number of bytes, or an age such as 90d
	Text  string `json:"-"`     // Value for people
}

// Settings lists what is set, in the order of the package comment.
func (c Config) Settings() []Setting {
	all := []Setting{}
	size := func(key string, s Size) {
		if s > 0 {
			all = append(all, Setting{key, int64(s), outputsink.FormatBytes(int64(s))})
		}
	}
	age := func(key string, a Age) {
		if a > 0 {
			all = append(all, Setting{key, a.String(), a.String()})
		}
	}
	for _, scope := range []struct {
		key string
		Limits
	}{{"quota.session.", c.Quota.Session}, {"quota.home.", c.Quota.Home}} {
		size(scope.key+"log", scope.Log)
		size(scope.key+"artifacts", scope.Artifacts)
		size(scope.key+"blobs", scope.Blobs)
	}
	age("retention.sessions", c.Retention.Sessions)
	age("retention.trash", c.Retention.Trash)
	word := func(key, s string) {
		if s != "" {
			all = append(all, Setting{key, s, s})
		}
	}
	word("sandbox.mode", string(c.Sandbox.Mode))
	word("sandbox.net", string(c.Sandbox.Net))
	l := c.Sandbox.Limits
	size("sandbox.limits.memory", l.Memory)
	if l.Processes > 0 {
		all = append(all, Setting{"sandbox.limits.processes", int64(l.Processes), strconv.FormatInt(int64(l.Processes), 10)})
	}
	age("sandbox.limits.cpu", l.CPU)
	size("sandbox.limits.file", l.File)
	size("sandbox.limits.disk", l.Disk)
	if len(c.SSH.Hosts) > 0 {
		all = append(all, Setting{"ssh.hosts", c.SSH.Hosts, strings.Join(c.SSH.Hosts, " ")})
	}
	text := func(key string, t Text) {
		if t != "" {
			all = append(all, Setting{key, string(t), string(t)})
		}
	}
	text("ssh.program", c.SSH.Program)
	text("ssh.config", c.SSH.Config)
	text("redact.mode", Text(c.Redact.Mode))
	text("redact.recipient", Text(c.Redact.Recipient))
	text("models.anthropic.url", c.Models.Anthropic.URL)
	text("models.openai.url", c.Models.OpenAI.URL)
	text("models.openai.api", c.Models.OpenAI.API)
	word("agent.compact.mode", string(c.Agent.Compact.Mode))
	if n := int64(c.Agent.Compact.Threshold); n > 0 {
		all = append(all, Setting{"agent.compact.threshold", n, strconv.FormatInt(n, 10)})
	}
	if len(c.Hooks) > 0 {
		all = append(all, Setting{"hooks", json.RawMessage(c.Hooks), "see agentrun hooks"})
	}
	return all
}
