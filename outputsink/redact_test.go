package outputsink_test

import (
	"io"
	"strings"
	"testing"

	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/redact"
)

func TestSecretsAreReplacedBeforeAnythingIsCountedShownOrKept(t *testing.T) {
	o := outputsink.DefaultOptions()
	r := redact.New(redact.Options{Values: []string{"hunter2hunter2"}})
	o.Redact = func() outputsink.Redactor { return r.Stream() }
	s := outputsink.New(o)
	live := s.Live()
	defer live.Close()
	_, _ = io.WriteString(s.Stdout(), "out hunter2")
	_, _ = io.WriteString(s.Stderr(), "err hunter2hunter2 and hun\n") // in between
	_, _ = io.WriteString(s.Stdout(), "hunter2 end, hunter2h")
	sum, err := s.Close()
	if err != nil {
		t.Fatal(err)
	}
	want := "out err [redacted:variable:1] and hun\n[redacted:variable:1] end, hunter2h"
	if sum.View != want || sum.Redacted != 2 || sum.TotalBytes != int64(len(want)) {
		t.Errorf("%d replaced, %d bytes: %q, want %q", sum.Redacted, sum.TotalBytes, sum.View, want)
	}
	if got, err := io.ReadAll(live); err != nil || string(got) != want {
		t.Errorf("live: %q, %v", got, err)
	}
	if _, err := io.WriteString(s.Stdout(), "x"); err != outputsink.ErrClosed {
		t.Errorf("behind Close: %v", err)
	}
}

func TestWithoutRedactionBothStreamsHaveOneWriter(t *testing.T) {
	s := outputsink.New(outputsink.DefaultOptions())
	defer s.Close()
	if s.Stdout() != s.Stderr() {
		t.Error("two writers, so that a process would get two pipes")
	}
	n := testing.AllocsPerRun(100, func() { _, _ = io.WriteString(s.Stdout(), "") })
	if n > 1 {
		t.Errorf("%v allocations", n)
	}
	if sum, _ := s.Close(); sum.Redacted != 0 || strings.Contains(sum.View, "redacted") {
		t.Errorf("%+v", sum)
	}
}
