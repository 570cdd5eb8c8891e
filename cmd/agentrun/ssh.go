package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/tool/bash"
	"github.com/agentrun/agentrun/tool/ssh"
)

func newSSHCommand(env *environment) *cobra.Command {
	run := &commandRun{environment: env}
	cmd := &cobra.Command{
		Use:   "ssh [flags] HOST SCRIPT|-",
		Short: "Run a shell script on another host, show and keep its output",
		Long: `ssh runs a script with bash, or sh, on a host: a name of ~/.ssh/config, or
[USER@]NAME[:PORT]. With - the script is the standard input. It shows, keeps and
records the output as bash does, and --cwd, --env and --timeout (300 s) are
those of the script there. It is ssh of the PATH that connects; all scripts for
a host share one connection, which stays for 5 minutes after the last.

The host's key has to be a known one (connect once by hand, and compare it),
and a key or an agent has to log in: nobody is asked for a password. No agent,
display, port or variable of this machine is passed on, whatever ~/.ssh/config
says; else that counts. The script's standard input is empty. A URL in it that
is a file of this machine, such as artifact://3, is refused.

A timeout, a signal or --max-output ends everything that the script started
there, as with bash; so does a lost connection, as soon as the host notices.
The exit status is that of the script, also 255, and 124 after --timeout. It is
125 when the host can not be reached or refuses, and when the connection was
lost: standard error tells which, and that the script may still run.

Settings in config.json of the home: ssh.program, the client; ssh.config, what
it reads in place of ~/.ssh/config; ssh.hosts, a list of the hosts that models
may reach with the tool ssh (agentrun call). In these * stands for any letters.
"build-*" allows hosts named without user and port, "*@build-*" any user.
Without it the tool reaches none. This command reaches any host. A sandbox is of
this machine, and does not hold there; with sandbox.net off no host is reached.`,
		Example: `  agentrun ssh build 'cd src && make 2>&1 | tail -50'
  agentrun ssh --timeout 1h --cwd /srv/app me@example.com:2222 ./deploy
  agentrun ssh build - <deploy.sh
  agentrun ssh --json build 'systemctl is-active nginx' | jq .exitCode`,
		Annotations: map[string]string{makesSessions: "yes"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("ssh takes a host and one script: quote it, as in: agentrun ssh build 'make | tail'")
			}
			if _, err := ssh.ParseHost(args[0]); err != nil {
				return &usageError{err}
			}
			if args[1] == "-" {
				return nil
			}
			if err := ssh.CheckScript(args[1]); err != nil {
				return &usageError{err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			script := args[1]
			if script == "-" {
				b, err := env.readInput("-", ssh.MaxScript)
				if err != nil {
					return failed(err)
				}
				script = string(b)
				if err := ssh.CheckScript(script); err != nil {
					return &usageError{err}
				}
			}
			return failed(run.remote(cmd, args[0], script))
		},
	}
	f := cmd.Flags()
	run.addRunFlags(f)
	run.timeout = timeout(bash.DefaultTimeout)
	f.Lookup("timeout").DefValue = run.timeout.String()
	return cmd
}

// remote runs a script on a host.
func (r *commandRun) remote(cmd *cobra.Command, name, script string) error {
	host, err := ssh.ParseHost(name)
	if err != nil {
		return &usageError{err}
	}
	settings, err := r.hostSettings()
	if err != nil {
		return err
	}
	if err := offline(settings); err != nil {
		return err
	}
	client, err := ssh.New(sshOptions(settings.SSH))
	if err != nil {
		return err
	}
	dir := r.cwd
	r.cwd = "" // it is the host's
	if strings.IndexByte(dir, 0) >= 0 {
		return usagef("--cwd contains a NUL byte")
	}
	return r.run(cmd.Context(), bash.Options{Script: script, Host: host.String(), Shell: client.On(host, dir)})
}

// hostSettings are those of the home; that something in the file is no setting is told by who opens the home.
func (e *environment) hostSettings() (config.Config, error) {
	home, err := session.ResolveHome(e.home)
	if err != nil {
		return config.Config{}, err
	}
	c, _, err := config.Load(nil, home)
	return c, err
}

var errOffline = errors.New("no host is reached, because commands have no network here: --net, or sandbox.net in config.json of the home, is off")

// offline returns an error where commands are to have no network.
func offline(c config.Config) error {
	if c.Sandbox.Net == "off" {
		return errOffline
	}
	return nil
}

// sshOptions are the settings in the form of package ssh.
func sshOptions(c config.SSH) ssh.Options {
	return ssh.Options{Program: string(c.Program), Config: string(c.Config)}
}

// sshTool is the tool of a workbench.
func (e *environment) sshTool() (*ssh.Tool, error) {
	c, err := e.hostSettings()
	if err != nil {
		return nil, err
	}
	t := &ssh.Tool{Options: sshOptions(c.SSH), Off: offline(c)}
	t.Allowed, err = ssh.ParsePatterns(c.SSH.Hosts)
	return t, err
}
