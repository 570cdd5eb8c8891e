// Package supervisor runs the shells and jobs of a session that outlive the command which started them.
//
// A session has at most one supervisor, a process that is started when it is first needed ([Client]) and ends a minute
// after the last shell and job. It holds a lock, and listens on a socket, both in <home>/run, mode 0600 in a directory of mode 0700. Whoever
// connects has to have its user id (SO_PEERCRED of unix(7)), and must not be in a sandbox.
//
// # Promises
//
//   - A named shell ([Shell]) lives until 30 minutes passed without a script. Scripts run in it are recorded by the client.
//     One whose client goes away is ended as by a timeout.
//   - A job is recorded in the session's log by the supervisor, start and end, and its output is an artifact from the first byte
//     on. What jobs there are, and their state, is read from the log ([Jobs]): it is true whoever was killed, since the start
//     names the boot, the process and its start time.
//   - A script that somebody waits for ([Client.Run]) may become a job on its way. Its result is handed out once ([Take]).
//   - When the supervisor is killed, so is everything that it started. When a session is removed, everything of it is
//     ended.
//   - A named kernel of Python ([Kernel]) lives as a named shell does. What its code asks for is done by the client.
//   - The terminal of a job is the supervisor's: [Client.Send] types at it, [Client.Screen] tells what it shows, and it
//     ends with the job.
//
// # Protocol
//
// Both sides write frames: a byte that says what it is, four bytes of length (big endian), and as many bytes. A
// connection is one [request], JSON; a script's output and its end come back. The protocol is that of one version of
// the program: a supervisor of another version is left to its shells and refused.
package supervisor

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/quantity"
	"github.com/agentrun/agentrun/sandbox"
	"github.com/agentrun/agentrun/tool/bash"
)

// Limits.
const (
	MaxJobs   = 64               // of a session that run at once
	MaxShells = 64               // named ones of a session, and as many kernels
	ShellIdle = 30 * time.Minute // after which a named shell ends
	linger    = time.Minute      // for which a supervisor without anything to do stays

	maxFrame = 64 << 20
	version  = 3
)

// Kinds of frames.
const (
	frameReady   = 'r' // the supervisor stays for this connection
	frameRequest = 'R'
	frameStarted = 'S' // the process group of a script, JSON
	frameStdout  = 'o'
	frameStderr  = 'e'
	frameExit    = 'X' // bash.Exit, JSON
	frameDone    = 'D' // of what gives no exit, JSON
	frameError   = 'E' // a sentence
	frameStop    = 's' // by the client: as a timeout does
	frameKill    = 'k' // by the client: at once
	frameDisplay = 'd' // python.Display, JSON
	frameOutcome = 'C' // python.Outcome without its displays, JSON
	frameAsk     = 'a' // what code in a cell asks for, JSON
	frameReply   = 'A' // by the client: the answer
	frameType    = 'i' // by the client: text for the terminal; the answer is frameTyped
	frameTyped   = 'I' // why it could not be typed, a sentence; empty when it was
	frameResize  = 'w' // by the client: bash.TerminalSize, JSON
	frameEnding  = 'K' // the script is about to be ended
	frameMove    = 'm' // by the client: on in the background; the answer is frameMoved
	frameMoved   = 'M' // movedFrame, JSON
	frameResult  = 'Z' // resultFrame, JSON
)

// request is what a client asks for.
type request struct {
	Version int    `json:"version"`
	Op      string `json:"op"` // run, cell, where, foreground, start, wait, send, screen, resize, kill, stop

	Shell    exact         `json:"shell,omitempty"`
	Kernel   exact         `json:"kernel,omitempty"`
	Path     exact         `json:"path,omitempty"` // of the shell's program
	Script   exact         `json:"script,omitempty"`
	Runs     exact         `json:"runs,omitempty"`
	Dir      exact         `json:"dir,omitempty"` // where the script runs
	Cwd      exact         `json:"cwd,omitempty"` // where a new shell starts
	Env      exacts        `json:"env,omitempty"`
	Environ  exacts        `json:"environ,omitempty"` // of a new shell
	Timeout  time.Duration `json:"timeout,omitempty"`
	Separate bool          `json:"separate,omitempty"`

	Terminal *bash.TerminalSize `json:"terminal,omitempty"` // the script has one; resize: the size
	Term     string             `json:"term,omitempty"`

	Sandbox   *sandbox.Policy `json:"sandbox,omitempty"` // of the shell; its paths are absolute
	MaxOutput int64           `json:"maxOutput,omitempty"`

	Redact *Redaction `json:"redact,omitempty"` // start, foreground
	Aside  bool       `json:"aside,omitempty"`  // start

	Unrecorded bool `json:"unrecorded,omitempty"` // foreground: only what is moved is recorded
	Live       bool `json:"live,omitempty"`       // foreground: the client wants the output as it comes

	Job  int64 `json:"job,omitempty"`
	Text exact `json:"text,omitempty"`
	EOF  bool  `json:"eof,omitempty"`
	Now  bool  `json:"now,omitempty"` // kill: without asking first
}

// done is the answer to what gives no exit.
type done struct {
	Job      int64   `json:"job"`
	Artifact int64   `json:"artifact"`
	Dir      exact   `json:"dir,omitempty"`    // where: "" is not known
	Stopped  Stopped `json:"stopped"`          // stop
	Screen   string  `json:"screen,omitempty"` // of a terminal
}

// conn is a connection with whole frames.
type conn struct {
	net.Conn
	r  *bufio.Reader
	mu sync.Mutex // guards writes

	stopped *stopWatch // of a client; nil for none
}

func newConn(c net.Conn) *conn { return &conn{Conn: c, r: bufio.NewReaderSize(c, 64<<10)} }

func (c *conn) send(kind byte, b []byte) error {
	if len(b) > maxFrame {
		return fmt.Errorf("%s are more than the %s that go over at once", quantity.Bytes(int64(len(b))), quantity.Size(maxFrame))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var head [5]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(b)))
	buffers := net.Buffers{head[:], b}
	_, err := buffers.WriteTo(c.Conn)
	return err
}

func (c *conn) sendJSON(kind byte, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return c.send(kind, b)
}

func (c *conn) receive() (byte, []byte, error) {
	kind, b, err := readFrame(c.r)
	if err != nil {
		if stopped := c.stopped.end(); stopped != nil {
			err = stopped
		}
	}
	return kind, b, err
}

func readFrame(r io.Reader) (byte, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("a frame of %d bytes, more than %d", n, maxFrame)
	}
	// It grows as it comes: the length is a claim.
	b, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(b) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return head[0], b, err
}

// place is where the supervisor of a session listens.
type place struct {
	dir  string // <home>/run
	name string // of the socket and the lock in it, without the extension
}

func placeOf(home, session string) place {
	sum := sha256.Sum256([]byte(session))
	return place{filepath.Join(home, "run"), hex.EncodeToString(sum[:16])}
}

// address is a path of the socket that is short enough for any home: sockaddr_un has 108 bytes. The directory stays
// open until close is called.
func (p place) address() (path string, close func() error, err error) {
	dir, err := os.Open(p.dir)
	if err != nil {
		return "", nil, err
	}
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + p.name + ".sock", dir.Close, nil
}

// listen takes the lock and makes the socket. It returns errTaken where another supervisor has them.
func (p place) listen() (net.Listener, *durable.Lock, error) {
	if err := durable.MkdirAll(nil, p.dir); err != nil {
		return nil, nil, fmt.Errorf("making the directory of supervisors: %w", err)
	}
	lock, err := durable.OpenLock(nil, filepath.Join(p.dir, p.name+".lock"))
	if err != nil {
		return nil, nil, err
	}
	if ok, err := lock.TryLock(); err != nil || !ok {
		lock.Close()
		return nil, nil, errors.Join(errTaken, err)
	}
	_ = durable.OS.Remove(filepath.Join(p.dir, p.name+".sock")) // of one that was killed
	path, closeDir, err := p.address()
	if err != nil {
		lock.Close()
		return nil, nil, err
	}
	defer closeDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		lock.Close()
		return nil, nil, fmt.Errorf("listening: %w", err)
	}
	l.SetUnlinkOnClose(false) // its path is that of a directory which is closed by then
	if err := os.Chmod(path, durable.FilePerm); err != nil {
		l.Close()
		lock.Close()
		return nil, nil, fmt.Errorf("listening: %w", err)
	}
	return l, lock, nil
}

var errTaken = errors.New("the session has a supervisor")

// dial connects to the supervisor that there is; none is an error that matches fs.ErrNotExist or ECONNREFUSED.
func (p place) dial() (*conn, error) {
	path, closeDir, err := p.address()
	if err != nil {
		return nil, err
	}
	defer closeDir()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if _, err := samePeer(c); err != nil {
		c.Close()
		return nil, err
	}
	return newConn(c), nil
}

// samePeer is the other side, which has to be of the same user.
func samePeer(c *net.UnixConn) (*unix.Ucred, error) {
	cred, err := peer(c)
	if err != nil {
		return nil, err
	}
	if int(cred.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("user %d is connected, and this is user %d", cred.Uid, os.Geteuid())
	}
	return cred, nil
}

// freePeer checks besides that the other side is in no sandbox: what it asks for runs outside of that. A process that is gone
// asks for nothing.
func freePeer(c *net.UnixConn) error {
	cred, err := samePeer(c)
	if err != nil {
		return err
	}
	if sandbox.Confined(int(cred.Pid)) {
		return fmt.Errorf("process %d is in a sandbox, and would have something run outside", cred.Pid)
	}
	return nil
}

// peer tells who is at the other side: for a client that is who listened.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	if cerr != nil {
		return nil, fmt.Errorf("asking who is connected: %w", cerr)
	}
	return cred, nil
}
