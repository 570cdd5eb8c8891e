package bash

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// long is a script of so many bytes: its third line is an error, and its last one tells how much of it came.
func long(size int) string {
	head, tail := "# a comment first\nx='", "'\nnothere\necho ${#x} $0 $# $(ls /proc/self/fd | wc -l); exit 7\n"
	return head + strings.Repeat("y", size-len(head)-len(tail)) + tail
}

func TestLongScriptsAreRunAsShortOnesAre(t *testing.T) {
	here, sh := os.Getenv("PATH"), shOnly(t)
	for _, c := range []struct {
		path, open, line string
		sizes            []int
	}{
		{here, "", "bash: line 3: nothere", []int{1 << 10, 128 << 10, 4 << 20}},
		{sh, "", ": 3: ", []int{1 << 10, 1 << 20}},
	} {
		for _, size := range c.sizes {
			script := long(size)
			res, err := Run(t.Context(), Options{Script: script, Env: []string{"PATH=" + c.path}})
			if err != nil {
				t.Fatal(err)
			}
			_, last, _ := strings.Cut(res.Output, "\n")
			count, open, _ := strings.Cut(last, " ")
			if c.open == "" {
				c.open = open // files that a short script has
			}
			if count != fmt.Sprint(strings.Count(script, "y")) || res.Code != 7 || !strings.Contains(res.Output, c.line) || open != c.open {
				t.Errorf("%d bytes: %d, %q", size, res.Code, res.Output)
			}
		}
	}
	_, err := Run(t.Context(), Options{Script: long(MaxScript + 1)})
	if err == nil || !strings.Contains(err.Error(), "the script has 16.0 MB, and 16MiB are the most: put it into a file, and run that") {
		t.Error(err)
	}
}

// shOnly is a search path in which there is no bash.
func shOnly(t *testing.T) string {
	dir := t.TempDir()
	for _, name := range []string{"sh", "ls", "wc", "cat"} {
		if err := os.Symlink("/bin/"+name, dir+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
