// Package ssh runs scripts on other hosts, through the OpenSSH client of the system.
//
// A [Remote] is a [bash.Runner]: bash.Run with it bounds, keeps and records what a script on a host prints, and ends it by
// the same rules as one that runs here. [Tool] offers it to a model, for the hosts that somebody allows.
//
// # Promises
//
//   - All scripts for one host, of all processes of the user, share one connection, which stays for some minutes after the
//     last. Where a host takes no more of them on one connection (MaxSessions of its sshd, 10), ssh makes one for the script alone.
//   - The host's key is one that the known hosts have; nobody is asked for anything, and no agent, display, port or variable
//     of this machine gets to the host. Else the user's configuration of ssh holds: names, users, keys, jumps.
//   - What a script prints comes to the byte, and in the order of writing unless the streams are wanted apart. Its standard
//     input is empty. bash runs it, sh where there is none.
//   - The exit status is the script's, also 255: it comes by a way that the script's output cannot imitate. A host that cannot
//     be reached or refuses is an [Error] with CodeFailure, and so is a directory that is not there; a lost connection is a
//     note and CodeFailure. The note says that the script may go on.
//   - A timeout, a cancelled context or a limit sends SIGINT, 2 s later SIGTERM, 2 s later SIGKILL to everything that the script
//     started on the host, also what left its session and its parent, if it still has the variable AGENTRUN_SSH_RUN or
//     somebody above it that has. What is left is told. The same happens when the connection is lost, or this process is
//     killed, as soon as the host notices; it does not need this process for that.
//   - What a script leaves running in its session is ended with it; setsid(1) starts what stays.
//
// # How
//
// The host's login shell, whatever it is, is asked to run a line that reads a program (remote.sh) from its standard input,
// which also brings the script and, later, the order to end it. Neither is in an argument, where ps would show it. A line of
// text is read with the shell's read, which takes not a byte more, so the script is not fed to a shell that its own commands
// read from (the trap of bash -s); it is read whole before it begins, and then has the null device as its standard input.
// What the program tells comes on the standard error, behind a number that nobody else knows, and is taken out.
//
// # Limits
//
// What the login shell prints before it comes to the script (a .bashrc that talks) is part of the output. The host needs sh, cat, and for the end of a script grep, sleep and /proc, or ps. Without setsid there, what a script leaves in the
// background stays. The processor time and memory of a script are not known. Processes of another user (sudo) can not be
// ended where the login may not. A host that vanished is noticed after 30 s, unless the configuration says otherwise
// (ServerAliveInterval).
//
// # Files
//
// The sockets of the connections are in $XDG_RUNTIME_DIR/agentrun-ssh, else in /tmp/agentrun-ssh-UID, for this user alone,
// beside what ssh reads first: a file that includes the user's and the system's configuration. All may be removed.
//
// Everything may be called concurrently. The package needs Linux; the host may be any with a POSIX shell.
package ssh

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/internalurl"
	"github.com/agentrun/agentrun/tool/bash"
)

// MaxScript bounds a script, in bytes.
const MaxScript = 1 << 20

// DefaultPersist is how long a connection stays behind the last script.
const DefaultPersist = 5 * time.Minute

// Options say which client is used, and how. The zero value is that of the system.
type Options struct {
	Program string        // the client, by a path or as the PATH has it; "" is ssh
	Config  string        // its configuration, in place of the user's and the system's; "" is these
	Dir     string        // of the sockets; "" is as the package says
	Persist time.Duration // how long a connection stays behind the last script; 0 is DefaultPersist
}

// Client makes connections. Use [New].
type Client struct {
	o       Options
	program string
}

// New finds the client.
func New(o Options) (*Client, error) {
	program, err := find(o.Program)
	if err != nil {
		return nil, err
	}
	if o.Persist <= 0 {
		o.Persist = DefaultPersist
	}
	return &Client{o: o, program: program}, nil
}

// Remote runs scripts on a host.
type Remote struct {
	client *Client
	host   Host
	dir    string
}

var _ bash.Runner = (*Remote)(nil)

// On returns what runs scripts on a host, in a directory there: "" is where a login begins, and ~/ stands for that.
func (c *Client) On(h Host, dir string) *Remote { return &Remote{client: c, host: h, dir: dir} }

// URLError is returned for a script with a URL that is a file of this machine only.
type URLError struct{ URL string }

func (e *URLError) Error() string {
	return fmt.Sprintf("%s in the script is kept on this machine, and not on the host: put what it needs of it into the script, or copy it there first", e.URL)
}

// CheckScript returns what keeps a script from being run on another host. A URL that bash would be given a path for is a
// *URLError.
func CheckScript(script string) error {
	switch {
	case strings.TrimSpace(script) == "":
		return fmt.Errorf("the script is empty: give commands")
	case strings.IndexByte(script, 0) >= 0:
		return fmt.Errorf("the script contains a NUL byte, which no shell can be given")
	case len(script) > MaxScript:
		return fmt.Errorf("the script has %s, and %s are the most: put it into a file on the host", quantity.Bytes(int64(len(script))), quantity.Size(MaxScript))
	}
	var found error
	internalurl.InScript(script, func(u internalurl.URL) (string, error) {
		if found == nil {
			found = &URLError{u.String()}
		}
		return "", found
	})
	return found
}
