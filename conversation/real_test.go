package conversation_test

import (
	"os"
	"path/filepath"
	"testing"
)

// realSessions are logs of real sessions, which are not part of the project.
func realSessions(t testing.TB) (paths []string) {
	t.Helper()
	dir := os.Getenv("AGENTRUN_TEST_DATA")
	if dir == "" {
		t.Skip("no recorded sessions: set AGENTRUN_TEST_DATA")
	}
	for _, pattern := range []string{"pi-sessions/*.jsonl", "pi-sessions/*/*.jsonl"} {
		more, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, more...)
	}
	if len(paths) == 0 {
		t.Skipf("there are no real sessions in %s", dir)
	}
	return paths
}
