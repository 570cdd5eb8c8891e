package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/config"
)

func newConfigCommand(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "config",
		Short: "Show the settings of the home, and check them",
		Long: `config shows what the file config.json of the home sets, and says what in it is
wrong. agentrun never writes the file, and without it nothing is limited and
nothing is ever removed. All settings there are:

  {
    "quota": {
      "session": {"log": "1GB", "artifacts": "20GB", "blobs": "2GB"},
      "home": {"log": "50GB", "artifacts": "200GB", "blobs": "20GB"}
    },
    "retention": {"sessions": "90d", "trash": "30d"},
    "sandbox": {"mode": "workspace", "net": "off", "limits": {"memory": "4GB",
      "processes": 500, "cpu": "10m", "file": "1GB", "disk": "10GB"}},
    "redact": {"mode": "reversible", "recipient": "age1..."},
    "ssh": {"hosts": ["build-*", "*@test"], "program": "ssh", "config": "FILE"},
    "models": {"anthropic": {"url": "URL"},
      "openai": {"url": "URL", "api": "chat"}},
    "agent": {"compact": {"mode": "on", "threshold": 150000}},
    "hooks": [{"on": "before-tool", "tool": "bash", "command": "./check"}]
  }

quota.session   limits each session, quota.home all of them together:
    .log        logs
    .artifacts  kept output, what agents handed back, and their sessions
    .blobs      images, long strings, and files of checkpoints; of a session
                those it cites
sandbox         what commands may do where no flag says otherwise: --sandbox,
                --net and --limits of agentrun exec
retention       what gc --apply may take away because it is old:
    .sessions   moves sessions to the trash that nobody wrote to for so long
    .trash      empties the trash of what was removed so long ago (30d)
redact          what becomes of secrets in output and entries, which are shown
                as they are kept; files that rewind gives back stay as they are
    .mode       off, on, or reversible: agentrun reveal shows them to the owner
    .recipient  of age; without it an identity that is kept in the home
ssh             how other hosts are reached; see agentrun ssh --help
models          where providers are; see agentrun models --help
agent.compact   when what a model is sent of a long session is made shorter: old
                output of tools becomes its URL, then a summary takes the place
                of the beginning. The log keeps everything.
    .mode       on (without it too) or off
    .threshold  from how many tokens on; without it what suits the model
hooks           commands that an agent's run calls; see agentrun hooks --help

A size is a number of bytes, or one with KB, MB, GB or TB in steps of 1024; an
age is a number with h, d or w. At 80 % of a quota agentrun warns. What has no
room is refused, and all that was kept before stays; the artifact of a command
that has none ends there, says so, and the command goes on. The end of a run is
never refused. agentrun sessions du shows what is used.

A name that is no setting does nothing, and whatever keeps something says so
once. A value that is none, or a file that is no JSON, lets nothing be kept
(exec exits with 125) until it is mended: a limit is meant, and nobody knows
which. Reading goes on. The status of config is 1 for both.

With --json it is one object: file, settings (key, value; sizes in bytes, ages
such as 90d), unknown (file, line, key, like).`,
		Example: `  agentrun config
  agentrun config --json | jq .unknown`,
		Args: positional(0, 0, "no arguments; it shows the settings, and an editor changes them"),
		RunE: func(*cobra.Command, []string) error { return env.showConfig() },
	}
}

// configReport is what config --json prints.
type configReport struct {
	File     string           `json:"file"`
	Settings []config.Setting `json:"settings"`
	Unknown  []config.Unknown `json:"unknown"`
}

func (e *environment) showConfig() error {
	m, err := e.manager()
	if err != nil {
		return err
	}
	c, unknown, err := config.Load(nil, m.Home())
	if err != nil {
		return err
	}
	r := configReport{File: config.Path(m.Home()), Settings: c.Settings(), Unknown: unknown}
	if r.Unknown == nil {
		r.Unknown = []config.Unknown{}
	}
	if err := e.printConfig(r); err != nil {
		return err
	}
	if len(unknown) > 0 {
		return &commandError{status: statusError}
	}
	return nil
}

func (e *environment) printConfig(r configReport) error {
	if e.json {
		return printJSON(e.stdout, r)
	}
	for _, u := range r.Unknown {
		e.mistake(u)
	}
	if len(r.Settings) == 0 {
		e.remark("%s sets nothing: no limits, and nothing is ever removed; agentrun help config shows what it may hold", r.File)
		return nil
	}
	out := table(e.stdout)
	for _, s := range r.Settings {
		fmt.Fprintf(out, "%s\t%s\n", s.Key, s.Text)
	}
	return out.Flush()
}
