package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes. It is also a flag's value.
type Size int64

// units of a Size, in steps of 1024 as agentrun prints them.
var units = []struct {
	suffix string
	bytes  int64
}{
	{"TIB", 1 << 40},
	{"GIB", 1 << 30},
	{"MIB", 1 << 20},
	{"KIB", 1 << 10},
	{"TB", 1 << 40},
	{"GB", 1 << 30},
	{"MB", 1 << 20},
	{"KB", 1 << 10},
	{"T", 1 << 40},
	{"G", 1 << 30},
	{"M", 1 << 20},
	{"K", 1 << 10},
	{"B", 1},
}

var errSize = errors.New("give a size above 0 such as 500MB, 1.5GB or 1048576, in steps of 1024; leave it out for no limit")

// Set reads a size such as "500MB", "1.5 GiB" or "1048576".
func (s *Size) Set(text string) error {
	t, unit := strings.ToUpper(strings.TrimSpace(text)), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(t, u.suffix); ok {
			t, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, ok := number(t, unit)
	if !ok || n < 1 {
		return errSize
	}
	*s = Size(n)
	return nil
}

// number reads digits with at most one point, times unit. ok is false for anything
// else and for what no int64 holds.
func number(text string, unit int64) (n int64, ok bool) {
	if strings.Trim(text, "0123456789.") != "" {
		return 0, false // what ParseFloat would take besides: exponents, signs, hex, Inf
	}
	if whole, err := strconv.ParseInt(text, 10, 64); err == nil {
		return whole * unit, whole <= math.MaxInt64/unit
	}
	f, err := strconv.ParseFloat(text, 64)
	f *= float64(unit)
	return int64(f), err == nil && f < math.MaxInt64/2
}

// UnmarshalJSON reads a number of bytes or a string.
func (s *Size) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
		if strings.Trim(text, "0123456789") != "" {
			return errSize
		}
	}
	return s.Set(text)
}

// String is the size in bytes, "" for 0.
func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type is the word of a usage text.
func (s *Size) Type() string { return "SIZE" }

// Age is how long something has been left alone. It is also a flag's value.
type Age time.Duration

var errAge = errors.New("give a time above 0 such as 90d, 2w or 12h; leave it out for never")

// days are the units that a Go duration lacks.
var days = map[byte]time.Duration{'d': 24 * time.Hour, 'w': 7 * 24 * time.Hour}

// Set reads an age: a whole or broken number with d (days of 24 hours) or w (weeks),
// or a Go duration such as "12h".
func (a *Age) Set(text string) error {
	text = strings.TrimSpace(text)
	d, err := time.ParseDuration(text)
	if n := len(text); err != nil && n > 0 && days[text[n-1]] > 0 {
		if v, ok := number(text[:n-1], int64(days[text[n-1]])); ok {
			d, err = time.Duration(v), nil
		}
	}
	if err != nil || d <= 0 {
		return errAge
	}
	*a = Age(d)
	return nil
}

// UnmarshalJSON reads a string.
func (a *Age) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) != nil {
		return errAge
	}
	return a.Set(text)
}

// String is the age in days or hours where it is a number of them, "" for 0.
func (a *Age) String() string {
	d := time.Duration(*a)
	switch {
	case d == 0:
		return ""
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return d.String()
}

// Type is the word of a usage text.
func (a *Age) Type() string { return "AGE" }

// Duration is the age as a length of time.
func (a Age) Duration() time.Duration { return time.Duration(a) }

// Mode is the name of a sandbox.
type Mode string

// UnmarshalJSON reads one of the names.
func (m *Mode) UnmarshalJSON(data []byte) error {
	return oneOf((*string)(m), data, "off", "read-only", "workspace")
}

// Switch is on or off.
type Switch string

// UnmarshalJSON reads one of the two.
func (s *Switch) UnmarshalJSON(data []byte) error { return oneOf((*string)(s), data, "on", "off") }

func oneOf(into *string, data []byte, words ...string) error {
	var text string
	if json.Unmarshal(data, &text) != nil || !slices.Contains(words, text) {
		return fmt.Errorf("give one of %q", words)
	}
	*into = text
	return nil
}

// Count is a number of things.
type Count int64

// UnmarshalJSON reads a number above 0.
func (c *Count) UnmarshalJSON(data []byte) error {
	var n int64
	if json.Unmarshal(data, &n) != nil || n < 1 {
		return errors.New("give a number above 0; leave it out for no limit")
	}
	*c = Count(n)
	return nil
}
