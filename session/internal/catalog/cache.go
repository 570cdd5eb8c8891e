package catalog

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// The list cache is text. Its first line is
//
//	agentrun list cache 3 <CRC-32C of all that follows, 8 hexadecimal digits>
//
// and every further line a log, fields separated by tabs:
//
//	s key inode size mtime  id version created cwd title parent project first
//	u key inode size mtime  reason
//
// key is the path below the sessions directory, mtime nanoseconds since 1970,
// created "seconds.nanoseconds" or empty; in strings `\`, tab and newline are
// `\\`, `\t` and `\n`. A reader that meets anything else has no cache.
const cacheMagic = "agentrun list cache 3 "

const (
	// cacheFrom is the number of logs from which reading the cache costs less
	// than opening them.
	cacheFrom = 16
	// maxCacheBytes bounds the memory for a cache that somebody made huge: room
	// for 200,000 sessions.
	maxCacheBytes = 64 << 20
	// maxCachedText keeps logs with monstrous headers out of the cache.
	maxCachedText = 8 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(body []byte) uint32 { return crc32.Checksum(body, castagnoli) }

// stamp tells a state of a file from every other state of it, once it is settled.
type stamp struct {
	ino         uint64
	size, mtime int64
}

func stampOf(id durable.Identity) stamp { return stamp{ino: id.Ino, size: id.Size, mtime: id.ModTime} }

func isRegular(id durable.Identity) bool { return id.Mode&syscall.S_IFMT == syscall.S_IFREG }

// settled reports whether a file that looked so at the time now can no longer
// change without a new modification time. The clock that stamps files moves in
// ticks of up to 10 ms on Linux, and of up to 2 s where times are whole seconds:
// a title rewritten in place within the tick of the last append would go unseen.
func (s stamp) settled(now time.Time) bool {
	tick := 100 * time.Millisecond
	if s.mtime%int64(time.Second) == 0 {
		tick = 2 * time.Second
	}
	return time.Unix(0, s.mtime).Sub(now).Abs() > tick
}

// cached is what was found in a log: a head, or the reason why there is none.
type cached struct {
	stamp  stamp
	head   head
	reason string
}

// cache maps keys of logs to what was found in them.
type cache map[string]cached

// parseCache returns nil for anything that appendCache would not have written.
// The strings of the cache share one copy of data.
func parseCache(data []byte) cache {
	rest, ok := bytes.CutPrefix(data, []byte(cacheMagic))
	if !ok || len(rest) < 9 || rest[8] != '\n' {
		return nil
	}
	sum, err := strconv.ParseUint(string(rest[:8]), 16, 32)
	if err != nil || uint32(sum) != checksum(rest[9:]) {
		return nil
	}
	body := string(rest[9:])
	entries := make(cache, strings.Count(body, "\n"))
	for body != "" {
		line, after, ended := strings.Cut(body, "\n")
		key, e, ok := parseCached(line)
		if !ended || !ok {
			return nil
		}
		entries[key] = e
		body = after
	}
	return entries
}

func parseCached(line string) (key string, e cached, ok bool) {
	f := fields{rest: line, ok: true}
	kind := f.text()
	key = f.text()
	e.stamp = stamp{ino: uint64(f.number(0, math.MaxInt64)), size: f.number(0, math.MaxInt64), mtime: f.number(math.MinInt64, math.MaxInt64)}
	switch kind {
	case "s":
		e.head = head{ID: f.text(), Version: int(f.number(0, math.MaxInt32)), Created: f.time(), CWD: f.text(), Title: f.text(), Parent: f.text(), Project: f.text(), First: f.text()}
	case "u":
		e.reason = f.text()
		f.ok = f.ok && e.reason != ""
	default:
		f.ok = false
	}
	return key, e, f.ok && f.rest == "" && key != ""
}

// fields takes the fields of a line one by one; ok turns false for good when one
// is missing or wrong.
type fields struct {
	rest string
	ok   bool
}

func (f *fields) next() string {
	field, rest, _ := strings.Cut(f.rest, "\t")
	f.rest = rest
	return field
}

func (f *fields) text() string {
	s := f.next()
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	return cacheUnescaper.Replace(s)
}

func (f *fields) number(low, high int64) int64 {
	n, err := strconv.ParseInt(f.next(), 10, 64)
	f.ok = f.ok && err == nil && n >= low && n <= high
	return n
}

func (f *fields) time() time.Time {
	sec, nsec, dotted := strings.Cut(f.next(), ".")
	if sec == "" && !dotted {
		return time.Time{}
	}
	s, err1 := strconv.ParseInt(sec, 10, 64)
	n, err2 := strconv.ParseUint(nsec, 10, 32)
	f.ok = f.ok && err1 == nil && err2 == nil && s >= minSecond && s <= maxSecond && n < 1e9
	return time.Unix(s, int64(n)).UTC()
}

// The years 0 to 9999, all that a timestamp can say, and a day for its zone.
const (
	minSecond = -62167219200 - 86400
	maxSecond = 253402300799 + 86400
)

var (
	cacheEscaper   = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`)
	cacheUnescaper = strings.NewReplacer(`\\`, `\`, `\t`, "\t", `\n`, "\n")
)

// appendCache appends the file that holds c, in the order of the keys.
func appendCache(dst []byte, c cache) []byte {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	dst = append(dst, cacheMagic...)
	dst = append(dst, "00000000\n"...)
	start := len(dst)
	text := func(s string) { dst = append(append(dst, '\t'), cacheEscaper.Replace(s)...) }
	number := func(n int64) { dst = strconv.AppendInt(append(dst, '\t'), n, 10) }
	for _, key := range keys {
		e := c[key]
		kind := byte('s')
		if e.reason != "" {
			kind = 'u'
		}
		dst = append(dst, kind)
		text(key)
		number(int64(e.stamp.ino))
		number(e.stamp.size)
		number(e.stamp.mtime)
		if e.reason != "" {
			text(e.reason)
		} else {
			text(e.head.ID)
			number(int64(e.head.Version))
			dst = append(dst, '\t')
			if t := e.head.Created; !t.IsZero() {
				dst = strconv.AppendInt(dst, t.Unix(), 10)
				dst = strconv.AppendInt(append(dst, '.'), int64(t.Nanosecond()), 10)
			}
			text(e.head.CWD)
			text(e.head.Title)
			text(e.head.Parent)
			text(e.head.Project)
			text(e.head.First)
		}
		dst = append(dst, '\n')
	}
	copy(dst[start-9:], fmt.Sprintf("%08x", checksum(dst[start:])))
	return dst
}

// cacheable reports whether e may go into the cache.
func (e *cached) cacheable() bool {
	return e.stamp.ino <= math.MaxInt64 && e.stamp.size >= 0 &&
		len(e.head.ID)+len(e.head.CWD)+len(e.head.Title)+len(e.head.Parent)+len(e.head.Project)+len(e.head.First)+len(e.reason) <= maxCachedText
}

// load turns what the directories hold into a listing, through the cache when
// that pays.
func (c *Catalog) load(ctx context.Context, found *finding) (*Listing, error) {
	var known cache
	useCache := len(found.files) >= cacheFrom
	if useCache {
		if data, err := durable.ReadFile(c.fsys, CachePath(c.home), maxCacheBytes); err == nil {
			known = parseCache(data)
		}
	}
	results := make([]result, len(found.files))
	err := inParallel(ctx, len(found.files), func(i int) error {
		f, r := &found.files[i], &results[i]
		if e, ok := known[f.key]; ok {
			var err error
			f.id, err = c.fsys.Identify(f.path)
			if err == nil && isRegular(f.id) && e.stamp == stampOf(f.id) {
				r.cached, r.hit = e, true
				return nil
			}
		}
		c.look(f, r)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found.moves != "" && c.moving() != found.moves {
		return nil, errMoves
	}
	l := &Listing{Sessions: make([]Info, 0, len(results)), Unreadable: found.unreadable}
	for i := range results {
		f, r := &found.files[i], &results[i]
		switch {
		case r.gone:
		case r.reason != "":
			l.Unreadable = append(l.Unreadable, Unreadable{Path: f.path, Reason: r.reason})
		default:
			l.Sessions = append(l.Sessions, f.info(r.head))
		}
	}
	if useCache {
		c.save(known, found, results)
	}
	return l, nil
}

// save brings the cache up to date, when there is anything to say that it does
// not say yet. A cache that cannot be written is none.
func (c *Catalog) save(known cache, found *finding, results []result) {
	hits, fresh := 0, 0
	for i := range results {
		if results[i].hit {
			hits++
		} else if results[i].keep {
			fresh++
		}
	}
	stale := found.all && hits < len(known) // logs that are gone or have changed
	if fresh == 0 && !stale {
		return
	}
	next := make(cache, len(known)+fresh)
	if !found.all {
		for key, e := range known {
			next[key] = e
		}
	}
	for i := range results {
		switch r := &results[i]; {
		case r.hit || r.keep:
			next[found.files[i].key] = r.cached
		default:
			delete(next, found.files[i].key)
		}
	}
	if data := appendCache(nil, next); len(data) <= maxCacheBytes {
		_ = durable.WriteFile(c.fsys, CachePath(c.home), false, data)
	}
}

// CheckCache reports whether the list cache of a home is one that this program would
// have written. What it says is compared with the logs whenever it is used. Without a
// cache the error matches fs.ErrNotExist.
func CheckCache(fsys durable.FS, home string) (bool, error) {
	data, err := durable.ReadFile(orOS(fsys), CachePath(home), maxCacheBytes)
	if err != nil {
		return false, err
	}
	return parseCache(data) != nil, nil
}
