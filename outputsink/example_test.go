package outputsink_test

import (
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/agentrun/agentrun/outputsink"
)

// artifact is the smallest file a sink can write to. A real one would publish the index in Finish.
type artifact struct{ *os.File }

func (artifact) URL() string                   { return "artifact://0" }
func (artifact) Finish(outputsink.Index) error { return nil }

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	o := outputsink.DefaultOptions()
	o.MaxLines = 5 // 2 for the head, 3 for the tail
	o.Open = func() (outputsink.File, error) {
		f, err := os.OpenFile(dir+"/0.bash.log", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		return artifact{f}, err
	}
	sink := outputsink.New(o)

	// A command would have these as its Stdout and Stderr.
	for i := range 1000 {
		fmt.Fprintf(sink.Stdout(), "\x1b[32mok\x1b[0m %d\r\n", i+1)
	}
	fmt.Fprint(sink.Stderr(), "progress 10%\rprogress 100%\n")

	sum, err := sink.Close()
	if err != nil {
		log.Print(err) // about the artifact; the summary is true all the same
	}
	fmt.Println(sum.View)
	// Output:
	// ok 1
	// ok 2
	// …
	// ok 999
	// ok 1000
	// progress 100%
	// [Showing lines 1-2 and 999-1001 of 1001; 996 lines (16.4 KB) between them: artifact://0]
}

func ExampleSanitizer() {
	var s outputsink.Sanitizer
	var text []byte
	for _, chunk := range []string{"\x1b[1;3", "1mred\x1b[", "0m\r\n 10%\r 100", "%\n caf\xc3", "\xa9\n"} {
		text = s.Append(text, []byte(chunk))
	}
	text = s.Flush(text)
	fmt.Println(strings.TrimSpace(string(text)))
	// Output:
	// red
	//  100%
	//  café
}
