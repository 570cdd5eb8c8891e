package python

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/agentrun/agentrun/internal/quantity"
)

const (
	maxFrame = 64 << 20 // bytes of JSON; runner.py has the same
	keySize  = 16
)

// key tells frames of a kernel from what anybody else writes to its sockets.
type key [keySize]byte

func newKey() (k key, err error) {
	if _, err := rand.Read(k[:]); err != nil {
		return k, fmt.Errorf("making a key: %w", err)
	}
	return k, nil
}

// errForeign is returned for bytes that are no frame of the kernel.
var errForeign = errors.New("something that is not the kernel wrote to its socket")

// channel is the owner's end of a socket of a kernel.
type channel struct {
	conn *net.UnixConn
	r    *bufio.Reader
	key  key
	mu   sync.Mutex // guards writes
}

// openChannel makes a channel, and the end of the kernel.
func openChannel(k key) (_ *channel, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "kernel"), os.NewFile(uintptr(pair[1]), "kernel")
	conn, err := net.FileConn(ours) // a copy
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("making a socket: %w", err)
	}
	return &channel{conn: conn.(*net.UnixConn), r: bufio.NewReaderSize(conn, 64<<10), key: k}, theirs, nil
}

// send sends a value, and files along with it.
func (c *channel) send(v any, files ...*os.File) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxFrame {
		return fmt.Errorf("%s are more than the %d MiB that go to a kernel at once", quantity.Bytes(int64(len(body))), maxFrame>>20)
	}
	head := make([]byte, 4, 4+keySize)
	binary.BigEndian.PutUint32(head, uint32(len(body)))
	head = append(head, c.key[:]...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		n, _, err := c.conn.WriteMsgUnix(head, unix.UnixRights(fds...), nil)
		if err != nil {
			return err
		}
		head = head[n:]
	}
	buffers := net.Buffers{head, body}
	_, err = buffers.WriteTo(c.conn)
	return err
}

// receive returns the JSON of the next frame.
func (c *channel) receive() ([]byte, error) { return readFrame(c.r, c.key) }

func readFrame(r io.Reader, k key) ([]byte, error) {
	var head [4 + keySize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errForeign
		}
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if key(head[4:]) != k || n > maxFrame {
		return nil, errForeign
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(n))) // it grows as it comes
	if err == nil && len(b) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return b, err
}

func (c *channel) close() { c.conn.Close() }
