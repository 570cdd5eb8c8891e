package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/model"
)

// Events is for fuzz tests of adapters: it plays events of a protocol, one a line, whatever
// they are, and checks that the stream ends once and that what is made of it can be put
// into a log. Reader returns what takes the data of an event, as long as it returns
// true.
func Events(t *testing.T, lines string, reader func(*model.Answer) func(data []byte) (bool, error)) {
	t.Helper()
	stream := model.Assemble(t.Context(), info, ask(), func(_ context.Context, a *model.Answer) error {
		read := reader(a)
		for line := range strings.Lines(lines) {
			if goOn, err := read([]byte(strings.TrimRight(line, "\n"))); err != nil || !goOn {
				return err
			}
		}
		return nil
	})
	ends := 0
	for e, err := range stream {
		var failed *model.Error
		var kept any
		switch stop, ok := e.(model.Stop); {
		case ok:
			ends++
			kept = stop.Message
		case errors.As(err, &failed):
			ends++
			kept = failed.Partial
			if strings.Contains(failed.Error(), "\n") {
				t.Errorf("the error has several lines: %q", failed.Error())
			}
		case err != nil:
			t.Fatalf("the error is a %T", err)
		}
		if _, err := json.Marshal(kept); err != nil {
			t.Fatalf("what was made of the stream is no JSON: %v", err)
		}
	}
	if ends != 1 {
		t.Fatalf("the stream has %d ends", ends)
	}
}
