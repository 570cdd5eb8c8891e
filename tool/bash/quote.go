package bash

import "strings"

// Quote writes arguments as a line that a POSIX shell splits into them again: what the log calls the command of a
// run that had no shell.
func Quote(argv []string) string {
	var b strings.Builder
	for i, a := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a != "" && strings.Trim(a, plain) == "" {
			b.WriteString(a)
			continue
		}
		b.WriteByte('\'')
		b.WriteString(strings.ReplaceAll(a, `'`, `'\''`))
		b.WriteByte('\'')
	}
	return b.String()
}

// plain are the characters that mean themselves to a shell wherever they stand.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:,@%"
