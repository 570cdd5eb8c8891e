package floors_test

import (
	"slices"
	"strings"
	"testing"
)

// libraryFloor is the highest floor that a user of the library needs.
const libraryFloor = 3

// banned is what no package of the library's floors may pull in, itself or through
// anything that it imports, with the reason. A name also bans what is below it.
var banned = map[string]string{
	"net/http":     "a log must be usable without a network stack, and without what a server or client listens to",
	"net/rpc":      "the cloud tier speaks to others, the library does not",
	"crypto/tls":   "only a network stack needs it",
	"database/sql": "a session is a file; the only databases are the index of search, above, and the blob store diskkv, which is imported by those who want it",
	"plugin":       "nothing is loaded that is not in the binary",

	"google.golang.org/grpc":          "an RPC stack belongs to the cloud tier",
	"connectrpc.com/connect":          "an RPC stack belongs to the cloud tier",
	"github.com/nats-io":              "an RPC stack belongs to the cloud tier",
	"google.golang.org/protobuf":      "the log is JSON; protobuf is a projection of it",
	"modernc.org/sqlite":              "a database driver belongs to search and blobstore/diskkv",
	"zombiezen.com/go/sqlite":         "a database driver belongs to search and blobstore/diskkv",
	"github.com/mattn/go-sqlite3":     "a database driver belongs to search and blobstore/diskkv",
	"github.com/anthropics":           "a model SDK belongs to model",
	"github.com/openai":               "a model SDK belongs to model",
	"github.com/spf13/cobra":          "flags belong to cmd",
	"github.com/charmbracelet":        "a terminal belongs to cmd",
	"testing":                         "only suites for tests may",
	"github.com/google/go-cmp":        "only suites for tests may",
	"github.com/rogpeppe/go-internal": "only suites for tests may",
	"pgregory.net/rapid":              "only suites for tests may",
	"go.uber.org/goleak":              "only suites for tests may",
}

// excused are packages that may pull in something banned.
var excused = map[arrow]string{
	{"blobstore/storetest", "testing"}:            "it is the suite that implementations of Store run",
	{"blobstore/storetest", "pgregory.net/rapid"}: "the suite has properties",
	{"internal/sshtest", "testing"}:               "its servers end with a test",
	{"blobstore/diskkv", "database/sql"}:          "its format is a database",
	{"blobstore/diskkv", "modernc.org/sqlite"}:    "the driver of that database",
	{"search", "database/sql"}:                    "its index is a database",
	{"search", "modernc.org/sqlite"}:              "the driver of that database",
}

// harmless are packages below a banned name that carry nothing.
var harmless = map[string]string{
	"database/sql/driver": "google/uuid implements its Valuer interface; the package holds interfaces, no driver, no pool",
}

// carried are the modules that session may pull in, with what each is there for.
// Whoever imports session gets all of them.
var carried = map[string]string{
	"github.com/fsnotify/fsnotify":                       "watches are told of changes by the kernel",
	"github.com/google/uuid":                             "session ids are UUIDv7",
	"github.com/klauspost/compress":                      "cold sessions are zstd",
	"github.com/SaveTheRbtz/zstd-seekable-format-go/pkg": "and seekable",
	"github.com/cespare/xxhash/v2":                       "checksums of seekable zstd",
	"github.com/tidwall/gjson":                           "members are read without decoding entries",
	"github.com/tidwall/match":                           "of gjson",
	"github.com/tidwall/pretty":                          "of gjson",
	"golang.org/x/sync":                                  "errgroup bounds reads of blobs",
	"golang.org/x/sys":                                   "renameat2, flock, fadvise",
}

func TestTheLibraryCarriesNoStack(t *testing.T) {
	all := packages(t)
	checked := 0
	for _, p := range sorted(all) {
		if floor, known := floorOf[p.name()]; !known || !p.ours() || floor > libraryFloor || generated(p) {
			continue
		}
		checked++
		for _, dep := range p.Deps {
			if _, ok := harmless[dep]; ok {
				continue
			}
			for name, reason := range banned {
				if dep != name && !strings.HasPrefix(dep, name+"/") || excused[arrow{p.name(), name}] != "" {
					continue
				}
				t.Errorf("importing %s pulls in %s through %s: %s", p.name(), dep, strings.Join(chain(all, p, dep), " -> "), reason)
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d packages were looked at", checked)
	}
}

// generated reports whether p is made from proto/. Those packages stand on floor 0, since
// they import nothing of ours, and bring protobuf and connect: what the library may not
// import, and with the ban on protobuf it may not import them either.
func generated(p pkg) bool { return strings.HasPrefix(p.name(), "gen/") }

func TestSessionCarriesOnlyWhatItNeeds(t *testing.T) {
	all := packages(t)
	session := all[module+"session"]
	seen := map[string]bool{}
	for _, dep := range session.Deps {
		p := all[dep]
		if p.Standard || p.ours() {
			continue
		}
		if p.Module == nil {
			t.Errorf("session pulls in %s, which is in no module", dep)
			continue
		}
		if seen[p.Module.Path] = true; carried[p.Module.Path] == "" {
			t.Errorf("importing session pulls in the module %s through %s: say in carried what for, or do without",
				p.Module.Path, strings.Join(chain(all, session, dep), " -> "))
		}
	}
	for path, reason := range carried {
		if !seen[path] {
			t.Errorf("session no longer pulls in %s (%s): take it out", path, reason)
		}
	}
}

// chain returns one shortest way from p to a package that it depends on.
func chain(all map[string]pkg, p pkg, to string) []string {
	before := map[string]string{p.ImportPath: ""}
	for queue := []string{p.ImportPath}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at == to {
			var way []string
			for ; at != ""; at = before[at] {
				way = append(way, strings.TrimPrefix(at, module))
			}
			slices.Reverse(way)
			return way
		}
		for _, next := range all[at].Imports {
			if _, ok := before[next]; !ok {
				before[next] = at
				queue = append(queue, next)
			}
		}
	}
	return []string{p.name(), "?", to}
}
