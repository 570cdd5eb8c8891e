package sandbox

import (
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// Ways to make namespaces.
const (
	viaNothing    = ""
	viaNamespaces = "namespaces" // by the kernel, for this process
	viaBubblewrap = "bubblewrap"
)

// spec is what a process on its way into a box is told, as JSON in its arguments.
type spec struct {
	Policy Policy `json:"policy"` // resolved
	Via    string `json:"via,omitempty"`
	Bwrap  string `json:"bwrap,omitempty"`
	Inside bool   `json:"inside,omitempty"` // bubblewrap has run

	Tmp     string   `json:"tmp,omitempty"`     // the directory that holds what becomes /tmp and /var/tmp
	Dir     string   `json:"dir,omitempty"`     // where the command begins
	Visible []string `json:"visible,omitempty"` // paths that must not vanish behind /tmp, /run and /dev

	Groups    []string `json:"groups,omitempty"`    // files of control groups to enter
	Data      int64    `json:"data,omitempty"`      // RLIMIT_DATA
	Processes int64    `json:"processes,omitempty"` // RLIMIT_NPROC
	Seconds   int64    `json:"seconds,omitempty"`   // RLIMIT_CPU

	Report int   `json:"report"`          // the file to which failures are written; closed by the command's beginning
	Keep   []int `json:"keep,omitempty"`  // files above 2 that the command inherits
	Exe    int   `json:"exe,omitempty"`   // this program, for bubblewrap
	Trial  bool  `json:"trial,omitempty"` // there is no command
}

// Names of the directories below Tmp.
var temporary = map[string]string{"/tmp": "tmp", "/var/tmp": "var-tmp"}

// devices are those that a command finds.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// covered are the directories that get other content.
var covered = []string{"/tmp", "/var/tmp", "/run", "/dev"}

// resolvers are below /run on machines that look up names there.
var resolvers = []string{"/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager", "/run/connman"}

// writable are the directories in which a command may write, besides /dev/shm.
func (s *spec) writable() []string {
	dirs := []string{"/tmp", "/var/tmp"}
	if s.Policy.Mode == Workspace {
		dirs = append(dirs, s.Policy.Roots...)
	}
	return dirs
}

// attachment is a path that gets back what was there before /tmp and others were covered.
type attachment struct {
	path     string
	writable bool
}

// attachments are in the order in which they are made: what is below something comes behind it.
func (s *spec) attachments() []attachment {
	var all []attachment
	add := func(path string, writable bool) {
		if _, err := os.Lstat(path); err == nil {
			all = append(all, attachment{path, writable})
		}
	}
	hidden := func(path string) bool {
		return slices.ContainsFunc(covered, func(dir string) bool { return within(path, dir) })
	}
	if !s.Policy.NetOff {
		for _, dir := range resolvers {
			add(dir, false)
		}
	}
	for _, path := range s.Visible {
		if hidden(path) && !slices.Contains(covered, path) {
			add(path, false)
		}
	}
	if s.Policy.Mode == Workspace {
		for _, root := range s.Policy.Roots {
			add(root, true)
		}
	}
	for _, path := range s.Policy.Protected {
		below := slices.ContainsFunc(s.Policy.Roots, func(root string) bool { return within(path, root) })
		if hidden(path) || s.Policy.Mode == Workspace && below {
			add(path, false)
		}
	}
	slices.SortStableFunc(all, func(a, b attachment) int { return len(a.path) - len(b.path) })
	return all
}

// mountPoint makes what a path needs to be mounted on, where that is missing: it was there before its directory was
// covered.
func mountPoint(path string, directory bool) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	if directory {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}
