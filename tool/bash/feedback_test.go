package bash

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agentrun/agentrun/artifacts"
)

func TestACommandThatReadsItsOwnOutputIsStopped(t *testing.T) {
	for _, tt := range []struct{ name, script string }{
		{"a program that waits for more", `seq 1 100000; tail -f -n +1 "$OUT"`},
		{"over and over", `seq 1 100000; while true; do cat "$OUT"; done`},
		{"behind a pipe", `seq 1 100000; tail -f -n +1 "$OUT" | while true; do head -c 10000 || break; done`},
		{"by a glob", `seq 1 100000; until cd "$(dirname "$OUT")"; do :; done 2>/dev/null; while true; do cat *.log; done`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var l memoryLog
			path := filepath.Join(t.TempDir(), "artifacts")
			dir := artifacts.Open(path, artifacts.Options{})
			res, err := Run(t.Context(), Options{
				Script: tt.script, Env: []string{"OUT=" + filepath.Join(path, "0.bash.log")}, Log: &l, Artifacts: dir,
				Timeout: time.Minute, // a command that is not stopped fails the test, and ends
			})
			if err != nil {
				t.Fatal(err)
			}
			if !res.Feedback || res.TimedOut || res.Code == 0 {
				t.Errorf("it ended with %+v", res.Exit)
			}
			if m, _ := finished(t, &l); !m.Cancelled || !strings.Contains(m.Output, "[Command stopped: it read its own output") {
				t.Errorf("the log does not say why it ended: %q", m.Output[max(0, len(m.Output)-300):])
			}
			if info, err := dir.Lookup(t.Context(), 0); err != nil || info.State != artifacts.Complete || info.Bytes != res.Summary.TotalBytes {
				t.Errorf("artifact %+v, %v, of %d bytes", info, err, res.Summary.TotalBytes)
			}
		})
	}
}

func TestACommandThatLooksIntoItsOutputOnceGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "artifacts")
	res, err := Run(t.Context(), Options{
		Script: `seq 1 100000; wc -l "$OUT" >/dev/null; exec 3<"$OUT"; sleep 0.5; seq 1 100000; sleep 0.5; seq 1 100000`,
		Env:    []string{"OUT=" + filepath.Join(path, "0.bash.log")}, Artifacts: artifacts.Open(path, artifacts.Options{}),
	})
	if err != nil || res.Feedback || res.Code != 0 {
		t.Errorf("%+v, %v", res.Exit, err)
	}
}

func TestWhatTheSystemSaysOfAnOpenFileIsRead(t *testing.T) {
	for _, tt := range []struct {
		name, info string
		want       bool
	}{
		{"read from", "pos:\t4096\nflags:\t0100000\nmnt_id:\t29\n", true},
		{"read and written", "pos:\t1\nflags:\t0100002\n", true},
		{"not read yet", "pos:\t0\nflags:\t0100000\n", false},
		{"written only", "pos:\t4096\nflags:\t0102001\n", false},
		{"nothing", "", false},
		{"flags that are none", "pos:\t4096\nflags:\tx\n", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := readsOn(tt.info); got != tt.want {
				t.Errorf("got %t", got)
			}
		})
	}
}
