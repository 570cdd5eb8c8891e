package shim

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"github.com/agentrun/agentrun/internal/process"
)

// roots are the shims of this process that live.
var roots registry

type registry struct {
	mu     sync.Mutex
	pids   map[int]bool
	adopts bool
}

// Adopt makes this process the next subreaper above its shims: what a shim that was killed leaves behind comes to it,
// and is killed. It is for a process all of whose children are shims.
func Adopt() error {
	if err := process.Subreap(); err != nil {
		return err
	}
	roots.mu.Lock()
	defer roots.mu.Unlock()
	roots.adopts = true
	return nil
}

// enroll notes a shim. The caller holds mu.
func (r *registry) enroll(pid int) {
	if r.pids == nil {
		r.pids = map[int]bool{}
	}
	r.pids[pid] = true
}

// dismiss forgets a shim that is gone. If it was lost, what it left is killed and reaped; no shim starts meanwhile.
func dismiss(pid int, lost bool) {
	roots.mu.Lock()
	defer roots.mu.Unlock()
	delete(roots.pids, pid)
	if !lost || !roots.adopts {
		return
	}
	for {
		found := false
		members, _ := process.Descendants(os.Getpid())
		for _, m := range members {
			if m.Parent == os.Getpid() && !roots.pids[m.PID] {
				found = true
				_ = m.Signal(syscall.SIGKILL)
				for {
					if _, err := syscall.Wait4(m.PID, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
						break
					}
				}
			}
		}
		if !found {
			return
		}
	}
}
