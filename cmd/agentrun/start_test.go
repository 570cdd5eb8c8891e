package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// heavy are the packages that may allocate much when they are initialised, before main and so at every start of the program, in
// bytes. Bytes are what is the same on every machine; each thousand takes about a microsecond, with the faults of its pages. A
// package of ours belongs not here: what it makes, it makes when it is needed (sync.OnceValue). A new one of others needs a look
// for a lighter one, and its reason in ARCHITECTURE.md.
var heavy = map[string]int{
	"rsc.io/markdown":                            700_000, // names of characters and pictures
	"github.com/ledongthuc/pdf":                  240_000, // names of characters
	"github.com/google/jsonschema-go/jsonschema": 90_000,  // its own fields, by reflection
	"github.com/dlclark/regexp2/v2/syntax":       45_000,  // classes of characters, for the tokenizer
	"github.com/agentrun/agentrun/gen/agent/v1":  215_000, // room for what is known of 500 messages, not touched: 0.06 ms
}

// ofTests is linked into the program of the tests alone.
const ofTests = "pgregory.net/rapid"

const (
	most    = 32_000    // what a package that is not heavy may allocate
	mostAll = 1_650_000 // what all may together
)

func TestAProgramThatStartsDoesLittleBeforeMain(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "version")
	cmd.Args[0] = "agentrun" // as testscript starts it
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all, seen := 0, map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, \d+ allocs$`).FindAllStringSubmatch(string(out), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		if m[1] == ofTests {
			continue
		}
		all += n
		limit, known := heavy[m[1]]
		if seen[m[1]] = true; !known {
			limit = most
		}
		if n > limit {
			t.Errorf("%s allocates %d bytes before main, more than %d: make it when it is needed, or look for a lighter package", m[1], n, limit)
		}
	}
	for name := range heavy {
		if !seen[name] {
			t.Errorf("%s does nothing before main any more: take it out of heavy", name)
		}
	}
	if all > mostAll {
		t.Errorf("packages allocate %d bytes before main, more than %d", all, mostAll)
	}
	t.Logf("%d packages allocate %d bytes before main", len(seen), all)
}
