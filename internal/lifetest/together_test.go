package lifetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/session"
)

// togetherEnv makes the test binary a process that reads its turn from its standard
// input, gets ready, waits for another line, and does the job as often as it is told.
const togetherEnv = "AGENTRUN_TEST_TOGETHER"

// turn is what one of two processes does.
type turn struct {
	Home  string
	Job   job
	Times int
}

// outcome is what it said: the results that were acknowledged, and the error that
// ended them.
type outcome struct {
	Results []result
	Err     string
	Kind    string // of the error: the sentinel that a program decides by
}

var sentinels = map[string]error{
	"locked": session.ErrLocked, "not found": session.ErrNotFound, "gone": session.ErrGone, "not there": fs.ErrNotExist,
}

func kindOf(err error) string {
	for _, kind := range []string{"locked", "not found", "gone", "not there"} {
		if errors.Is(err, sentinels[kind]) {
			return kind
		}
	}
	return "other"
}

func runTogether(in *bufio.Reader) error {
	said, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var t turn
	if err := json.Unmarshal(said, &t); err != nil {
		return err
	}
	w, err := newWorker(t.Home, durable.OS)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	var o outcome
	for range max(1, t.Times) {
		var r result
		if r, err = w.do(context.Background(), t.Job); err != nil {
			break
		}
		o.Results = append(o.Results, r)
	}
	if err = errors.Join(err, w.close()); err != nil {
		o.Err, o.Kind = err.Error(), kindOf(err)
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}

// child is a process that waits for its turn.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr strings.Builder
}

func prepareChild(ctx context.Context, t turn) (*child, error) {
	c := &child{cmd: exec.CommandContext(ctx, os.Args[0])}
	c.cmd.Env = append(os.Environ(), togetherEnv+"=1")
	c.cmd.Stderr = &c.stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReaderSize(out, 1<<20)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := json.NewEncoder(c.in).Encode(t); err != nil {
		return nil, err
	}
	if said, err := c.out.ReadString('\n'); said != "ready\n" {
		return nil, fmt.Errorf("%q, %w: %w: %s", said, err, c.cmd.Wait(), c.stderr.String())
	}
	return c, nil
}

// end waits for a child that was told to go.
func (c *child) end() (o outcome, err error) {
	err = json.NewDecoder(c.out).Decode(&o)
	if werr := c.cmd.Wait(); werr != nil {
		err = errors.Join(err, werr, errors.New(c.stderr.String()))
	}
	return o, err
}

// atOnce has two processes do their jobs at the same time. They are let go a moment
// apart, another one every time, so that they meet at every step in the end.
func atOnce(t *testing.T, home string, turns [2]turn) (outs [2]outcome) {
	t.Helper()
	var both [2]*child
	for i, turn := range turns {
		turn.Home = home
		c, err := prepareChild(t.Context(), turn)
		if err != nil {
			t.Fatal(err)
		}
		both[i] = c
	}
	first := rand.IntN(2)
	for i := range both {
		if i == 1 {
			time.Sleep(time.Duration(rand.IntN(3_000_000)))
		}
		if _, err := io.WriteString(both[(first+i)%2].in, "\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range both {
		var err error
		if outs[i], err = c.end(); err != nil {
			t.Fatal(err)
		}
	}
	return outs
}
