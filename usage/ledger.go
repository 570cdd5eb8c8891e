package usage

import (
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/agentrun/agentrun/internal/durable"
)

// ledgerName holds the totals of a home, ledgerLock is locked while they change.
const (
	ledgerName = "usage.json"
	ledgerLock = "usage.lock"
)

// maxLedger bounds the file, in bytes.
const maxLedger = 4 << 10

// ledgerWait is how long a process waits for others that count.
const ledgerWait = 2 * time.Second

// totals are the bytes of a home by class. It is the content of usage.json.
type totals struct {
	Log       int64     `json:"log"`
	Artifacts int64     `json:"artifacts"`
	Blobs     int64     `json:"blobs"`
	Counted   time.Time `json:"counted"` // when the directories were walked over
}

// at is the number of a class.
func (t *totals) at(c Class) *int64 {
	switch c {
	case Log:
		return &t.Log
	case Artifacts:
		return &t.Artifacts
	default:
		return &t.Blobs
	}
}

// ledger is what one process knows of the totals.
type ledger struct {
	fs   durable.FS
	home string
	now  func() time.Time

	known  totals // as all processes have said
	own    totals // what this one has kept and not said
	unsaid int64  // bytes of own, added up without their signs
}

// used is the best estimate of a class.
func (l *ledger) used(c Class) int64 { return max(0, *l.known.at(c)+*l.own.at(c)) }

// add counts n more bytes of a class.
func (l *ledger) add(c Class, n int64) {
	*l.own.at(c) += n
	l.unsaid += max(n, -n)
}

// load sees to it that the totals were counted within age.
func (l *ledger) load(age time.Duration) {
	if l.now().Sub(l.known.Counted) <= age {
		return
	}
	l.exchange(age)
}

// say adds what this process kept to the totals, and learns what others did.
func (l *ledger) say() {
	if l.unsaid > 0 {
		l.exchange(maxAge)
	}
}

// forget has the totals counted anew by who needs them next. Without the file, which
// is not needed, that costs them a walk over the home.
func (l *ledger) forget() {
	_ = l.fs.Remove(filepath.Join(l.home, ledgerName)) // as good as it goes: they are estimates
}

// exchange adds own to the file, which is counted anew when its count is older than
// age. Where the lock cannot be had or the file not be written, the process goes on
// with what it counts itself: the accounting stops nobody.
func (l *ledger) exchange(age time.Duration) {
	if lock, err := durable.OpenLock(l.fs, filepath.Join(l.home, ledgerLock)); err == nil {
		defer lock.Close()
		if lock.Lock(context.Background(), ledgerWait) != nil {
			return
		}
	}
	t, ok := l.read()
	now := l.now()
	if old := now.Sub(t.Counted); !ok || old > age || old < 0 {
		counted, err := count(l.fs, l.home)
		if err != nil {
			return
		}
		t, t.Counted = counted, now // with what this process kept
	} else {
		for _, c := range []Class{Log, Artifacts, Blobs} {
			*t.at(c) = max(0, *t.at(c)+*l.own.at(c))
		}
	}
	l.known, l.own, l.unsaid = t, totals{}, 0
	if data, err := json.Marshal(t); err == nil {
		_ = durable.WriteFile(l.fs, filepath.Join(l.home, ledgerName), false, append(data, '\n'))
	}
}

// read reads the file. ok is false when there is none that can be believed.
func (l *ledger) read() (t totals, ok bool) {
	data, err := durable.ReadFile(l.fs, filepath.Join(l.home, ledgerName), maxLedger)
	ok = err == nil && json.Unmarshal(data, &t) == nil && t.Log >= 0 && t.Artifacts >= 0 && t.Blobs >= 0
	if !ok {
		return totals{}, false
	}
	return t, true
}

// count walks over a home.
func count(fsys durable.FS, home string) (totals, error) {
	var t totals
	w := walker{fs: fsys, seen: map[inode]bool{}}
	err := w.home(home, func(f file) {
		if f.class == Log || f.class == Artifacts || f.class == Blobs {
			*t.at(f.class) += f.fresh
		}
	})
	return t, err
}
