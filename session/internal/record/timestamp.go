package record

import "time"

// timeLen is the length of a timestamp of the years 0 to 9999.
const timeLen = len("2006-01-02T15:04:05.000Z")

// AppendTime appends t in UTC with milliseconds, cut, not rounded, as
// Date.prototype.toISOString prints it: years outside 0 to 9999 take a sign and
// six digits (ECMA-262, 21.4.1.32). It does not allocate beyond dst.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, sec := t.Clock()
	switch {
	case year < 0:
		dst = append2(append2(append2(append(dst, '-'), -year/10000), -year/100), -year)
	case year > 9999:
		dst = append2(append2(append2(append(dst, '+'), year/10000), year/100), year)
	default:
		dst = append2(append2(dst, year/100), year)
	}
	dst = append2(append(dst, '-'), int(month))
	dst = append2(append(dst, '-'), day)
	dst = append2(append(dst, 'T'), hour)
	dst = append2(append(dst, ':'), minute)
	dst = append2(append(dst, ':'), sec)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// append2 appends the last two decimal digits of n.
func append2(dst []byte, n int) []byte {
	return append(dst, byte('0'+n/10%10), byte('0'+n%10))
}

// ParseTime reads a timestamp: the form of [AppendTime] without allocating, and
// any RFC 3339 time that another program wrote. The result is in UTC.
func ParseTime(b []byte) (time.Time, bool) {
	if len(b) == timeLen && b[4] == '-' && b[7] == '-' && b[10] == 'T' && b[13] == ':' && b[16] == ':' && b[19] == '.' && b[23] == 'Z' {
		year, ok1 := digits(b[0:4])
		month, ok2 := digits(b[5:7])
		day, ok3 := digits(b[8:10])
		hour, ok4 := digits(b[11:13])
		minute, ok5 := digits(b[14:16])
		sec, ok6 := digits(b[17:19])
		ms, ok7 := digits(b[20:23])
		if ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && hour < 24 && minute < 60 && sec < 60 {
			t := time.Date(year, time.Month(month), day, hour, minute, sec, ms*int(time.Millisecond), time.UTC)
			// time.Date normalises February 30 instead of refusing it.
			if t.Day() == day && int(t.Month()) == month {
				return t, true
			}
		}
		return time.Time{}, false
	}
	const longest = 64 // no RFC 3339 time is longer; time.Parse quotes what it refuses
	if len(b) > longest {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, string(b))
	return t.UTC(), err == nil
}

func digits(b []byte) (n int, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}
