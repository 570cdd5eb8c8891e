// Package quantity writes sizes and times as people read them. What it writes of a size that was given, and of a time, is
// what --limits, config.json and --timeout read.
package quantity

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const units = " KMGT"

// Bytes is a number of bytes with one digit behind the point, in steps of 1024: 812 B, 1.5 MB.
func Bytes(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= 1023.95 && unit < 4 { // never 1024.0 of a unit
		f /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %cB", f, units[unit])
}

// Size is a number of bytes that somebody chose, to the byte: 64MiB, 1536KiB, 1000 for what is no multiple of 1024.
func Size(n int64) string {
	unit := 0
	for n != 0 && n%1024 == 0 && unit < len(units)-1 {
		n /= 1024
		unit++
	}
	text := strconv.FormatInt(n, 10)
	if unit > 0 {
		text += units[unit:unit+1] + "iB"
	}
	return text
}

// Time is a duration without the units that are 0 at its end: 5m, 1h30m, 1.5s, 300ms.
func Time(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// Count is a number of things: 1 request, 2 requests.
func Count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}
