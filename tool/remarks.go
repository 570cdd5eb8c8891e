package tool

import (
	"fmt"
	"strings"
)

// MaxProblems is how many problems a result tells one by one.
const MaxProblems = 10

// WithProblems puts what could not be read behind a text: a line in brackets for each of the first MaxProblems, and
// one that counts the others.
func WithProblems(text string, problems []string) string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(text, "\n"))
	for _, p := range problems[:min(len(problems), MaxProblems)] {
		b.WriteString("\n[" + p + "]")
	}
	if more := len(problems) - MaxProblems; more > 0 {
		fmt.Fprintf(&b, "\n[%d more could not be read]", more)
	}
	return b.String()
}
