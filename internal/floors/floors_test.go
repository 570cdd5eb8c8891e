package floors_test

import (
	"maps"
	"slices"
	"testing"
)

// floorOf is the house. A package imports packages of lower floors only; the
// arrows along a floor are in along.
var floorOf = map[string]int{
	"blobref":              0,
	"gen/agent/v1":         0,
	"gen/agent/v1/service": 0,
	"gen/agent/v1/service/agentservicev1connect": 0,
	"gen/aiserver/v1":                   0,
	"gen/aiserver/v1/aiserverv1connect": 0,
	"gen/anyrun/v1":                     0,
	"gen/agentrun/kv/v1":                0,
	"gen/agentrun/kv/v1/kvv1connect":    0,
	"internal/quantity":                 0,

	"blobstore":                             1,
	"blobstore/faultstore":                  1,
	"blobstore/diskkv":                      1,
	"blobstore/encrypted":                   1,
	"blobstore/cached":                      1,
	"blobstore/localdir":                    1,
	"blobstore/retry":                       1,
	"blobstore/memory":                      1,
	"blobstore/internal/spool":              1,
	"blobstore/internal/badline":            4,
	"blobstore/internal/tracecontext":       4,
	"blobstore/storetest":                   1,
	"internal/archive":                      1,
	"internal/bearer":                       1,
	"internal/charset":                      1,
	"internal/durable":                      1,
	"internal/durable/faultfs":              1,
	"internal/ecmajson":                     1,
	"internal/lineindex":                    1,
	"internal/notify":                       1,
	"internal/pipe":                         1,
	"internal/literal":                      1,
	"internal/notebook":                     1,
	"internal/pdftext":                      1,
	"internal/picture":                      1,
	"internal/process":                      1,
	"internal/project":                      1,
	"internal/screen":                       1,
	"internal/cgroup":                       1,
	"internal/shim":                         1,
	"internal/strictjson":                   1,
	"internal/sshtest":                      1,
	"internal/terminal":                     1,
	"internal/gitignore":                    1,
	"internal/textdiff":                     1,
	"internal/textform":                     1,
	"internal/frontmatter":                  1,
	"internal/walk":                         1,
	"internal/withhold":                     1,
	"internal/seal":                         1,
	"sandbox":                               1,
	"outputsink":                            1,
	"redact":                                1,
	"blobstore/writethrough":                1,
	"blobstore/writethrough/internal/idlog": 1,

	"artifacts":                2,
	"blobstore/otelobserver":   2,
	"config":                   2,
	"redact/gitleaks":          2,
	"redact/vault":             2,
	"session":                  2,
	"session/entry":            2,
	"session/internal/catalog": 2,
	"session/internal/journal": 2,
	"session/internal/persist": 2,
	"session/internal/record":  2,

	"bundle":         3,
	"checkpoint":     3,
	"session/gc":     3,
	"internalurl":    3,
	"search":         3,
	"session/doctor": 3,
	"tool":           3,
	"tool/bash":      3,
	"tool/edit":      3,
	"tool/find":      3,
	"tool/grep":      3,
	"tool/python":    3,
	"tool/read":      3,
	"tool/shell":     3,
	"tool/ssh":       3,
	"tool/toolset":   3,
	"tool/workspace": 3,
	"tool/write":     3,
	"usage":          3,
	"follow":         3,
	"transcript":     3,

	"model":                         4,
	"model/provider":                4,
	"model/record":                  4,
	"model/openai":                  4,
	"model/modeltest":               4,
	"model/internal/wire":           4,
	"model/anthropic":               4,
	"model/script":                  4,
	"supervisor":                    4,
	"agent":                         4,
	"agent/compact":                 4,
	"agent/permission":              4,
	"agent/hook":                    4,
	"agent/instructions":            4,
	"agent/plan":                    4,
	"task":                          5,
	"conversation":                  5,
	"conversation/internal/sidecar": 5,
	"kv":                            5,
	"kv/internal/envelope":          4,
	"task/isolation":                2,
	"blobstore/httpstore":           4,
	"kv/kvhttp":                     5,

	"blobstore/internal/pace":              1,
	"blobstore/internal/exact":             1,
	"blobstore/s3store":                    4,
	"internal/s3":                          4,
	"internal/s3test":                      4,
	"conversation/pointers":                5,
	"conversation/pointers/diskkvpointers": 5,
	"conversation/pointers/s3pointers":     5,
	"conversation/action":                  5,
	"conversation/handler":                 5,
	"conversation/pointers/pointerstest":   5,

	"storeurl": 6,

	"cmd/agentrun/internal/anew":    7,
	"cmd/agentrun/internal/chat":    7,
	"cmd/agentrun/internal/picker":  7,
	"cmd/agentrun/internal/runview": 7,
	"cmd/agentrun":                  8,
}

// arrow is an import along a floor.
type arrow struct{ from, to string }

// along lists the arrows along a floor, each with what it is good for.
var along = map[arrow]string{
	{"conversation/pointers/diskkvpointers", "conversation/pointers"}:      "it is a store of them",
	{"conversation/pointers/s3pointers", "conversation/pointers"}:          "it is a store of them",
	{"conversation/handler", "conversation/pointers"}:                      "where a checkpoint is noted",
	{"conversation", "conversation/internal/sidecar"}:                      "keeps what agent.v1 has no words for",
	{"conversation/pointers/pointerstest", "conversation/pointers"}:        "the suite that every store of pointers passes",
	{"cmd/agentrun/internal/chat", "cmd/agentrun/internal/runview"}:        "a chat shows runs",
	{"gen/agent/v1/service", "gen/agent/v1"}:                               "the messages of the service",
	{"gen/agent/v1/service", "gen/aiserver/v1"}:                            "the messages of the service",
	{"gen/agent/v1/service/agentservicev1connect", "gen/agent/v1/service"}: "the descriptor of the service",
	{"gen/agent/v1/service/agentservicev1connect", "gen/agent/v1"}:         "the messages of the service",
	{"gen/agent/v1/service/agentservicev1connect", "gen/aiserver/v1"}:      "the messages of the service",
	{"gen/aiserver/v1", "gen/agent/v1"}:                                    "an agent in the cloud has a conversation",
	{"gen/aiserver/v1/aiserverv1connect", "gen/aiserver/v1"}:               "the messages of the services, and their descriptors",
	{"gen/agentrun/kv/v1", "gen/agent/v1"}:                                 "its messages are those of agent.v1",
	{"gen/agentrun/kv/v1/kvv1connect", "gen/agentrun/kv/v1"}:               "the descriptor of the service",
	{"gen/agentrun/kv/v1/kvv1connect", "gen/agent/v1"}:                     "the messages of the service",
	{"internal/terminal", "internal/screen"}:                               "the size of a terminal is that of its screen",
	{"tool/ssh", "tool/bash"}:                                              "runs scripts for it",
	{"kv/kvhttp", "kv"}:                                                    "carries its streams over HTTP",
	{"tool/ssh", "tool"}:                                                   "implements Tool",
	{"tool/ssh", "internalurl"}:                                            "tells which URLs in a script are files of this machine",
	{"internal/sshtest", "internal/process"}:                               "ends the connections of a server",
	{"tool/shell", "tool/bash"}:                                            "runs scripts for it",
	{"internal/cgroup", "internal/process"}:                                "groups of makers that are gone are removed",
	{"internal/shim", "internal/cgroup"}:                                   "kills what is below a shim as a whole",
	{"internal/shim", "internal/process"}:                                  "finds and signals what is below a shim",
	{"blobstore/cached", "blobstore"}:                                      "a layer implements the Store interface",
	{"blobstore/retry", "blobstore"}:                                       "a layer implements the Store interface",
	{"blobstore/localdir", "blobstore"}:                                    "a layer implements the Store interface",
	{"blobstore/httpstore", "blobstore/internal/tracecontext"}:             "requests name their span",
	{"blobstore/s3store", "blobstore/internal/tracecontext"}:               "requests name their span",
	{"blobstore/internal/exact", "blobstore"}:                              "its errors are those of a store",
	{"blobstore/s3store", "internal/s3"}:                                   "a bucket is asked in the words of S3",
	{"internal/s3test", "internal/s3"}:                                     "a bucket has to be made",
	{"blobstore/internal/spool", "blobstore"}:                              "what it holds is a Blob",
	{"blobstore/internal/spool", "internal/durable"}:                       "only durable makes files",
	{"blobstore/memory", "blobstore"}:                                      "a layer implements the Store interface",
	{"blobstore/storetest", "blobstore"}:                                   "the suite that every Store passes",
	{"blobstore/faultstore", "blobstore"}:                                  "wraps a Store to inject faults",
	{"blobstore/storetest", "blobstore/faultstore"}:                        "the store below a layer fails",
	{"blobstore/storetest", "blobstore/memory"}:                            "what is below the store that fails",
	{"blobstore/writethrough", "blobstore"}:                                "a layer implements the Store interface",
	{"blobstore/writethrough", "blobstore/writethrough/internal/idlog"}:    "its queue on disk",
	{"blobstore/writethrough", "internal/durable"}:                         "only durable renames, locks and syncs",
	{"blobstore/writethrough/internal/idlog", "internal/durable"}:          "only durable renames, locks and syncs",
	{"blobstore/localdir", "internal/durable"}:                             "only durable renames, locks and syncs",
	{"internal/durable/faultfs", "internal/durable"}:                       "wraps its FS to inject faults",
	{"internal/bearer", "internal/durable"}:                                "reads files of a bounded size",
	{"internal/seal", "internal/durable"}:                                  "only durable makes files",
	{"internal/project", "internal/durable"}:                               "only durable replaces files",
	{"outputsink", "internal/lineindex"}:                                   "indexes the lines of a spilled stream while it is written",
	{"session", "artifacts"}:                                               "a fork and a move bring the artifacts along",
	{"session", "session/entry"}:                                           "entries are what a log is made of",
	{"session", "session/internal/catalog"}:                                "where the logs of a home are",
	{"session", "session/internal/journal"}:                                "what a move has to know after a crash",
	{"session", "session/internal/persist"}:                                "what becomes of an entry on its way to the line",
	{"session", "session/internal/record"}:                                 "the line itself",
	{"session/internal/catalog", "session/internal/record"}:                "a listing reads headers",
	{"session/internal/journal", "session/internal/catalog"}:               "knows where logs may be",
	{"session/internal/journal", "session/internal/record"}:                "a journal holds the header line to be written",
	{"session/doctor", "bundle"}:                                           "what is lost here may be in a bundle",
	{"tool/bash", "tool"}:                                                  "implements Tool",
	{"tool/read", "tool"}:                                                  "implements Tool",
	{"tool/python", "tool"}:                                                "implements Tool",
	{"tool/python", "tool/bash"}:                                           "runs and records cells as it does scripts, and scripts for code in a cell",
	{"tool/python", "tool/read"}:                                           "reads URLs for code in a cell",
	{"tool/python", "tool/workspace"}:                                      "which files code may have read",
	{"tool/read", "internalurl"}:                                           "reads whatever a URL names",
	{"tool/edit", "tool"}:                                                  "implements Tool",
	{"tool/edit", "tool/workspace"}:                                        "the way of new content into a file",
	{"tool/read", "tool/workspace"}:                                        "which files may be read",
	{"tool/toolset", "tool"}:                                               "offers tools together",
	{"internal/textform", "internal/charset"}:                              "encodings that are not Western",
	{"internal/walk", "internal/gitignore"}:                                "leaves out what git ignores",
	{"tool/find", "internalurl"}:                                           "tells URLs from paths",
	{"tool/find", "tool"}:                                                  "implements Tool",
	{"tool/find", "tool/workspace"}:                                        "which files may be listed",
	{"tool/grep", "tool"}:                                                  "implements Tool",
	{"tool/grep", "tool/find"}:                                             "searches what it lists",
	{"tool/grep", "tool/workspace"}:                                        "which files may be searched",
	{"tool/write", "tool"}:                                                 "implements Tool",
	{"tool/write", "tool/edit"}:                                            "shows the difference as an edit does",
	{"tool/write", "tool/workspace"}:                                       "the way of new content into a file",
	{"internal/shim", "sandbox"}:                                           "starts commands in a box",
	{"sandbox", "internal/cgroup"}:                                         "limits are held by control groups",
	{"sandbox", "internal/process"}:                                        "tells whether the maker of a directory lives, and who is below a process",
	{"transcript", "tool/bash"}:                                            "a run's start and end are told as one",
	{"model/script", "model"}:                                              "implements Model",
	{"agent/compact", "agent"}:                                             "says how its usage and its giving up are told",
	{"agent/compact", "model"}:                                             "asks a model for summaries",
	{"agent", "agent/permission"}:                                          "asks whether a call may be made",
	{"agent/hook", "agent"}:                                                "is what an agent calls",
	{"agent", "agent/plan"}:                                                "tells of modes and lists in the log",
	{"agent/plan", "agent/permission"}:                                     "a mode has rules",
	{"agent", "model"}:                                                     "asks a model",
	{"model/anthropic", "model"}:                                           "implements Model",
	{"model/anthropic", "model/internal/wire"}:                             "HTTP and what its errors mean",
	{"model/openai", "model"}:                                              "implements Model",
	{"model/openai", "model/internal/wire"}:                                "HTTP and what its errors mean",
	{"model/internal/wire", "model"}:                                       "makes its errors",
	{"model/modeltest", "model"}:                                           "the suite that every Model passes",
	{"model/modeltest", "model/script"}:                                    "its scenarios are lines of scripts",
	{"model/record", "model"}:                                              "wraps a Model",
	{"model/record", "model/script"}:                                       "what it writes is a script",
	{"model/provider", "model"}:                                            "opens Models",
	{"model/provider", "model/anthropic"}:                                  "one of the providers",
	{"model/provider", "model/openai"}:                                     "one of the providers",
	{"model/provider", "model/script"}:                                     "a script in the place of a provider",
	{"checkpoint", "tool/bash"}:                                            "what a run changed was not changed by someone else",
	{"blobstore/diskkv", "blobstore"}:                                      "a layer implements the Store interface",
	{"blobstore/diskkv", "internal/durable"}:                               "only durable makes, moves and locks files",
	{"blobstore/encrypted", "blobstore"}:                                   "a layer implements the Store interface",
}

// outside are packages that nothing imports and that may import anything: what
// they have are tests and measurements.
func outside(p pkg) bool { return !p.code() }

// standalone are packages with a package comment and tests only.
var standalone = []string{"internal/floors", "internal/lifetest", "interop"}

func TestEveryPackageStandsOnAFloor(t *testing.T) {
	all := packages(t)
	for _, p := range sorted(all) {
		_, known := floorOf[p.name()]
		switch {
		case !p.ours() || outside(p) || known:
		case slices.Contains(standalone, p.name()):
			if len(p.Imports) > 0 {
				t.Errorf("%s is there for its tests and imports %v outside of them", p.name(), p.Imports)
			}
		default:
			t.Errorf("%s stands on no floor: give it one in floorOf and draw it in ARCHITECTURE.md", p.name())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(floorOf)) {
		if !all[module+name].ours() {
			t.Errorf("%s is in floorOf and in no folder: take it out", name)
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	all := packages(t)
	drawn := map[arrow]bool{}
	for _, p := range sorted(all) {
		if !p.ours() || outside(p) {
			continue
		}
		for _, path := range p.Imports {
			to, ok := all[path]
			if !ok || !to.ours() {
				continue
			}
			a := arrow{p.name(), to.name()}
			switch from, below := floorOf[a.from], floorOf[a.to]; {
			case from > below:
			case from < below:
				t.Errorf("%s (floor %d) imports %s (floor %d): an import never goes up; declare a small interface where it is consumed",
					a.from, from, a.to, below)
			default:
				if drawn[a] = true; along[a] == "" {
					t.Errorf("%s imports %s along floor %d: arrows along a floor need a reason in along and ARCHITECTURE.md",
						a.from, a.to, from)
				}
			}
		}
	}
	for a, reason := range along {
		if !drawn[a] {
			t.Errorf("%s no longer imports %s (%s): take the arrow out", a.from, a.to, reason)
		}
	}
}

// sorted returns the packages by path.
func sorted(all map[string]pkg) []pkg {
	var list []pkg
	for _, path := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[path])
	}
	return list
}
