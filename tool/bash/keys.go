package bash

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// keys are what keys of an xterm send. The arrows are those of its normal mode, which programs that ask for the other
// one understand as well.
var keys = map[string]string{
	"enter": "\r", "tab": "\t", "escape": "\x1b", "space": " ", "backspace": "\x7f", "delete": "\x1b[3~", "insert": "\x1b[2~",
	"up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
	"home": "\x1b[H", "end": "\x1b[F", "pageup": "\x1b[5~", "pagedown": "\x1b[6~",
	"f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS", "f5": "\x1b[15~", "f6": "\x1b[17~",
	"f7": "\x1b[18~", "f8": "\x1b[19~", "f9": "\x1b[20~", "f10": "\x1b[21~", "f11": "\x1b[23~", "f12": "\x1b[24~",
	"ctrl-space": "\x00", "ctrl-[": "\x1b", `ctrl-\`: "\x1c", "ctrl-]": "\x1d", "ctrl-^": "\x1e", "ctrl-_": "\x1f",
}

// Key is what a key sends to a terminal, by its name in letters of any case: ctrl-a to ctrl-z, enter, tab, escape, space,
// backspace, delete, insert, up, down, left, right, home, end, pageup, pagedown, f1 to f12.
func Key(name string) (string, error) {
	lower := strings.ToLower(name)
	if text, ok := keys[lower]; ok {
		return text, nil
	}
	if letter, ok := strings.CutPrefix(lower, "ctrl-"); ok && len(letter) == 1 && letter[0] >= 'a' && letter[0] <= 'z' {
		return string(rune(letter[0] - 'a' + 1)), nil
	}
	var named []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if !strings.HasPrefix(k, "ctrl-") {
			named = append(named, k)
		}
	}
	return "", fmt.Errorf("there is no key %q: give ctrl-a to ctrl-z, or one of %s", name, strings.Join(named, ", "))
}
