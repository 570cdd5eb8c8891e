package usage

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/agentrun/agentrun/config"
	"github.com/agentrun/agentrun/internal/durable"
)

// warnAt is the part of a limit from which on it is warned of.
const warnAt = 0.8

// How old a count may be on whose word a warning is given, or something refused. A
// count walks over the home: a command that runs in a loop against a used up quota
// must not do so each time.
const (
	maxAgeWarning = time.Minute
	maxAgeRefusal = 5 * time.Second
	maxAge        = 24 * time.Hour
)

// step is how much is kept before totals are compared with those of others again.
func step(limit int64) int64 { return min(max(limit/256, 4<<10), 16<<20) }

// nearParts is what part of the room that is left a process keeps at most before it tells
// the others.
const nearParts = 16

// Options of a Guard.
type Options struct {
	// Warn is told once of each limit that is used up by four fifths; nil means that
	// nobody is. It may be called from any goroutine that keeps something and must not
	// call the Guard.
	Warn func(Limit)
	// Mistake is told once of each member of the settings that is none, when something
	// is first to be kept; nil means that nobody is. It must not call the Guard.
	Mistake func(config.Unknown)
	Now     func() time.Time // nil means time.Now
	FS      durable.FS       // nil means durable.OS; tests inject faults here
}

// Guard holds what is kept against the quotas of a home. A nil Guard has none.
type Guard struct {
	home  string
	quota config.Quota
	opt   Options
	err   error // of the settings

	mistakes []config.Unknown // of the settings
	told     sync.Once

	mu     sync.Mutex // guards all below
	ledger ledger
	dirs   map[string]*directory
	warned map[Limit]bool // with Used 0

	recount bool // the totals of the home, when it is closed
}

// directory is what is known of the artifacts of one session.
type directory struct {
	counted int64     // bytes at the last count
	granted int64     // since
	at      time.Time // of that count
}

// Open reads the settings of a home. Without any quota, and without a member that may
// be a misspelt one, it returns nil. Settings that cannot be read are an error of
// everything that is to be kept: a limit may be among them.
func Open(home string, o Options) *Guard {
	if o.FS == nil {
		o.FS = durable.OS
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c, unknown, err := config.Load(o.FS, home)
	if err == nil && c.Quota.IsZero() && len(unknown) == 0 {
		return nil
	}
	return &Guard{
		home: home, quota: c.Quota, opt: o, err: err, mistakes: unknown,
		ledger: ledger{fs: o.FS, home: home, now: o.Now},
		dirs:   map[string]*directory{}, warned: map[Limit]bool{},
	}
}

// usable tells of mistakes in the settings, once, and refuses everything when they
// cannot be read.
func (g *Guard) usable() error {
	g.told.Do(func() {
		for _, m := range g.mistakes {
			if g.opt.Mistake != nil {
				g.opt.Mistake(m)
			}
		}
	})
	return g.err
}

// Log asks for n more bytes in a log that has size bytes. An error that matches
// [ErrQuota] is a no.
func (g *Guard) Log(size, n int64) error {
	if err := g.usable(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.fits(Limit{OfSession, Log, size, of(g.quota.Session, Log)}, n); err != nil {
		return err
	}
	return g.takeAll(Log, n)
}

// Logged tells of bytes that logs have grown by, or shrunk, beside what was asked for.
func (g *Guard) Logged(n int64) {
	if g.err != nil || g.quota.Home == (config.Limits{}) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ledger.load(maxAge)
	g.ledger.add(Log, n)
	g.tell(Log)
}

// Arrive asks for a session that comes into the home as a whole, with a log of that
// many bytes and artifacts, of which shared are other names of files that the home has.
// One that comes back had its room before: only the limits of the home count.
func (g *Guard) Arrive(log, artifacts, shared int64, back bool) error {
	if err := g.usable(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !back {
		for _, l := range []struct {
			Limit
			n int64
		}{
			{Limit{OfSession, Log, 0, of(g.quota.Session, Log)}, log},
			{Limit{OfSession, Artifacts, 0, of(g.quota.Session, Artifacts)}, artifacts},
		} {
			if err := g.fits(l.Limit, l.n); err != nil {
				return err
			}
		}
	}
	if err := g.takeAll(Log, log); err != nil {
		return err
	}
	err := g.takeAll(Artifacts, artifacts-shared)
	if err != nil {
		g.ledger.add(Log, -log)
	}
	return err
}

// Recount has the totals counted anew by whoever needs them next. It is for operations
// that free space, or change much without asking.
func (g *Guard) Recount() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recount = true
}

// Blob asks for a blob of n bytes for a session that cites blobs of cited bytes;
// fresh says that the home does not have it yet.
func (g *Guard) Blob(cited, n int64, fresh bool) error {
	if err := g.usable(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.fits(Limit{OfSession, Blobs, cited, of(g.quota.Session, Blobs)}, n); err != nil || !fresh {
		return err
	}
	return g.takeAll(Blobs, n)
}

// Artifacts asks for n more bytes in the artifact directory dir and returns how many
// it may have; with fewer than n comes the error that says why. A negative n gives
// bytes back that were granted and not used.
func (g *Guard) Artifacts(dir string, n int64) (granted int64, err error) {
	if err := g.usable(); err != nil {
		return 0, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := of(g.quota.Session, Artifacts)
	d := g.dirs[dir]
	if d == nil {
		d = &directory{}
		g.dirs[dir] = d
	}
	if n < 0 {
		d.granted += n
		g.ledger.add(Artifacts, n)
		return n, nil
	}
	granted = n
	if limit > 0 {
		if d.at.IsZero() || d.granted >= step(limit) || d.counted+d.granted+n > limit && g.opt.Now().Sub(d.at) > maxAgeRefusal {
			g.count(dir, d)
		}
		used := d.counted + d.granted
		if granted = min(n, max(0, limit-used)); granted < n {
			err = g.refusal(Limit{OfSession, Artifacts, used + granted, limit}, 0)
		}
		g.warn(Limit{OfSession, Artifacts, used + granted, limit})
	}
	if got, herr := g.take(Artifacts, granted); got < granted {
		granted, err = got, herr
	}
	d.granted += granted
	return granted, err
}

// count counts what a session keeps as artifacts. A directory that cannot be read
// holds nothing that was counted; who writes into it will hear why.
func (g *Guard) count(dir string, d *directory) {
	d.counted, d.granted, d.at = 0, 0, g.opt.Now()
	w := walker{fs: g.opt.FS}
	_ = w.tree(dir, func(f file) {
		if f.class == Artifacts {
			d.counted += f.id.Size
		}
	})
}

// fits refuses n more bytes than a limit has room for, and warns of a limit that is
// nearly used up.
func (g *Guard) fits(l Limit, n int64) error {
	if l.Limit == 0 {
		return nil
	}
	if l.Used+n > l.Limit {
		return g.refusal(l, n)
	}
	l.Used += n
	g.warn(l)
	return nil
}

func (g *Guard) refusal(l Limit, need int64) error {
	return &QuotaError{Limit: l, Need: need, Path: config.Path(g.home)}
}

// warn tells once of a limit that is nearly used up.
func (g *Guard) warn(l Limit) {
	if float64(l.Used) < warnAt*float64(l.Limit) {
		return
	}
	key := Limit{Scope: l.Scope, Class: l.Class}
	if g.warned[key] || g.opt.Warn == nil {
		return
	}
	g.warned[key] = true
	g.opt.Warn(l)
}

// takeAll asks for n bytes of what the home may have, all or none.
func (g *Guard) takeAll(c Class, n int64) error {
	if room, limit := g.room(c, n); room < n {
		return g.refusal(Limit{OfHome, c, g.ledger.used(c), limit}, n)
	}
	g.keep(c, n)
	return nil
}

// take asks for n bytes of what the home may have, as far as there is room.
func (g *Guard) take(c Class, n int64) (granted int64, err error) {
	room, limit := g.room(c, n)
	granted = min(n, room)
	if granted < n {
		err = g.refusal(Limit{OfHome, c, g.ledger.used(c) + granted, limit}, 0)
	}
	g.keep(c, granted)
	return granted, err
}

// room is how many more bytes of a class the home may have, counted anew before it is
// less than n.
func (g *Guard) room(c Class, n int64) (room, limit int64) {
	limit = of(g.quota.Home, c)
	if g.quota.Home == (config.Limits{}) || limit == 0 {
		return math.MaxInt64, 0
	}
	g.ledger.load(maxAge)
	if g.ledger.used(c)+n > limit {
		g.ledger.load(maxAgeRefusal)
	}
	return max(0, limit-g.ledger.used(c)), limit
}

// keep counts n bytes that the home may have, and warns of a limit that is nearly used
// up.
func (g *Guard) keep(c Class, n int64) {
	if g.quota.Home == (config.Limits{}) {
		return
	}
	g.ledger.load(maxAge)
	g.ledger.add(c, n)
	limit := of(g.quota.Home, c)
	if key := (Limit{Scope: OfHome, Class: c}); limit > 0 && !g.warned[key] && float64(g.ledger.used(c)) >= warnAt*float64(limit) {
		g.ledger.load(maxAgeWarning)
		g.warn(Limit{OfHome, c, g.ledger.used(c), limit})
	}
	g.tell(c)
}

// tell adds what was kept to the totals of the home: from time to time, and the more
// often the nearer a limit is.
func (g *Guard) tell(c Class) {
	limit := of(g.quota.Home, c)
	if limit == 0 {
		return // other processes need it at the end at the latest
	}
	if g.ledger.unsaid >= min(step(limit), max(0, limit-g.ledger.used(c))/nearParts) {
		g.ledger.say()
	}
}

// Limits says how far the quotas of the home are used up, counted now. It is for du,
// which has counted everything anyway.
func Limits(q config.Quota, r *Report) []Limit {
	limits := []Limit{}
	used := map[Class]int64{
		Log: r.Classes.Log, Artifacts: r.Classes.Artifacts,
		Blobs: r.Classes.Blobs.Bytes(),
	}
	for _, c := range []Class{Log, Artifacts, Blobs} {
		if l := of(q.Home, c); l > 0 {
			limits = append(limits, Limit{OfHome, c, used[c], l})
		}
	}
	return limits
}

// SessionLimits says how far a session has used up its quotas.
func SessionLimits(q config.Quota, s *Session) []Limit {
	limits := []Limit{}
	used := map[Class]int64{Log: s.Log, Artifacts: s.Artifacts, Blobs: s.Blobs.Unique + s.Blobs.Shared}
	for _, c := range []Class{Log, Artifacts, Blobs} {
		if l := of(q.Session, c); l > 0 {
			limits = append(limits, Limit{OfSession, c, used[c], l})
		}
	}
	return limits
}

// Close adds what was kept to the totals of the home. That they could not be written
// costs a count some day.
func (g *Guard) Close() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.recount {
		g.ledger.forget()
		return
	}
	g.ledger.say()
}

// IsRefusal reports whether an error is about a quota.
func IsRefusal(err error) bool { return errors.Is(err, ErrQuota) }
