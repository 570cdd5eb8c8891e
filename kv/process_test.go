package kv_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/blobref"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/blobstore/localdir"
	"github.com/agentrun/agentrun/kv"
)

// serveEnv makes this test binary serve the directory that it names over its standard
// input and output.
const serveEnv = "AGENTRUN_TEST_KV_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveEnv); dir != "" {
		if err := serveStdio(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func serveStdio(dir string) error {
	store, err := localdir.Open(dir, localdir.Options{})
	if err != nil {
		return err
	}
	c := kv.NewControlled(store, kv.ControlledOptions{})
	return c.Serve(context.Background(), kv.NewStream(os.Stdin, os.Stdout, c.MaxMessage(), nil))
}

// child is a peer in a process of its own.
type child struct {
	kv.Stream
	cmd *exec.Cmd
}

func startChild(dir string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), serveEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &child{cmd: cmd, Stream: kv.NewStream(out, in, kv.MaxMessage(0), func() error {
		return errors.Join(in.Close(), cmd.Wait())
	})}, nil
}

func TestAProcessIsServedOverItsStandardInput(t *testing.T) {
	dir := t.TempDir()
	var last *child
	r := kv.NewRemote(func(context.Context) (kv.Stream, error) {
		var err error
		last, err = startChild(dir)
		return last, err
	}, kv.RemoteOptions{})
	defer r.Close()
	// It is killed again and again; what it acknowledged is there afterwards, and what
	// it did not is asked of the next one.
	const lives = 5
	for life := range lives {
		for i := range 20 {
			data := fmt.Appendf(nil, "%d/%d", life, i)
			if err := r.Set(t.Context(), blobref.Of(data), data); err != nil {
				t.Fatalf("Set in life %d: %v", life, err)
			}
		}
		if err := last.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for life := range lives {
		for i := range 20 {
			data := fmt.Appendf(nil, "%d/%d", life, i)
			if got, err := r.Get(t.Context(), blobref.Of(data)); err != nil || string(got) != string(data) {
				t.Errorf("Get of what life %d acknowledged = %q, %v", life, got, err)
			}
		}
	}
	if stats := r.Stats(); stats.Connections != lives+1 {
		t.Errorf("counted %+v", stats)
	}
	if _, err := r.Get(t.Context(), blobref.Of([]byte("absent"))); !errors.Is(err, blobstore.ErrNotFound) {
		t.Errorf("Get of what is not there = %v", err)
	}
}
