package doctor_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/agentrun/agentrun/artifacts"
	"github.com/agentrun/agentrun/blobstore"
	"github.com/agentrun/agentrun/bundle"
	"github.com/agentrun/agentrun/internal/lineindex"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/doctor"
	"github.com/agentrun/agentrun/session/entry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// home is a home with one session that has everything: an image in a blob, an
// artifact with its run, a subagent's session.
type home struct {
	m        *session.Manager
	log      string
	dir      string // of the artifacts
	artifact string
	blob     string
	nested   string
}

func user(text string) entry.Body {
	return entry.MessageBody{Message: must(json.Marshal(map[string]any{"role": "user", "content": text, "timestamp": 1}))}
}

func image(seed int) entry.Body {
	data := base64.StdEncoding.EncodeToString(bytes.Repeat(fmt.Appendf(nil, "image %d ", seed), 500))
	return entry.MessageBody{Message: json.RawMessage(`{"role":"user","content":[{"type":"image","mimeType":"image/png","data":"` + data + `"}],"timestamp":1}`)}
}

func newHome(t *testing.T) *home {
	t.Helper()
	m := must(session.OpenManager(filepath.Join(t.TempDir(), "home"), session.Options{Durability: session.Flush}))
	return fill(t, m)
}

func fill(t *testing.T, m *session.Manager) *home {
	t.Helper()
	ctx := t.Context()
	s := must(m.Create(ctx, t.TempDir(), session.CreateOptions{}))
	defer s.Close()
	must(s.Append(ctx, user("one")))
	must(s.Append(ctx, image(1)))
	h := &home{m: m, log: s.Path(), dir: s.ArtifactsDir()}
	h.artifact = h.run(t, s, "output of a command\n")
	must(s.Append(ctx, user("two")))
	nested := must(m.Create(ctx, t.TempDir(), session.CreateOptions{}))
	must(nested.Append(ctx, user("a subagent")))
	nested.Close()
	h.nested = filepath.Join(h.dir, "0-Task.jsonl")
	if err := os.Rename(nested.Path(), h.nested); err != nil {
		t.Fatal(err)
	}
	h.blob = must(filepath.Glob(filepath.Join(m.Home(), "blobs", "[0-9a-f]*")))[0]
	return h
}

// run keeps an artifact as a command does, and records its end. It returns its file.
func (h *home) run(t *testing.T, s *session.Session, output string) string {
	t.Helper()
	ctx := t.Context()
	d := artifacts.Open(h.dir, artifacts.Options{LoggedMax: s.MaxArtifactID})
	f := must(d.Create(ctx, "bash", artifacts.Provenance{Run: "r1"}))
	must(f.Write([]byte(strings.Repeat(output, 100))))
	ix := must(lineindex.Build(ctx, strings.NewReader(strings.Repeat(output, 100))))
	if err := errors.Join(f.Finish(ix), f.Close()); err != nil {
		t.Fatal(err)
	}
	details := fmt.Sprintf(`{"run":"r1","artifact":{"id":%d,"bytes":%d,"lines":%d,"crc32c":"%08x"}}`, f.ID(), ix.Size, ix.Lines, ix.CRC32C)
	must(s.Append(ctx, entry.BashExecutionMessage{Command: "make", Output: "…", Details: json.RawMessage(details)}))
	return f.Path()
}

// examine runs the doctor over the whole home.
func examine(t *testing.T, m *session.Manager, opt doctor.Options) (found []doctor.Finding, sum doctor.Summary) {
	t.Helper()
	opt.Report = func(f doctor.Finding) { found = append(found, f) }
	d := must(doctor.New(t.Context(), m, opt))
	if err := errors.Join(d.Home(t.Context()), d.Close()); err != nil {
		t.Fatal(err)
	}
	return found, d.Summary()
}

func kinds(found []doctor.Finding) (kinds []string) {
	for _, f := range found {
		kinds = append(kinds, f.Kind)
	}
	return kinds
}

// contents are all files below dir with what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			all[path] = string(must(os.ReadFile(path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestALogThatIsMovedOrRemovedMeanwhileIsNoFinding(t *testing.T) {
	for name, away := range map[string]func(m *session.Manager, path string) error{
		"moved": func(m *session.Manager, path string) error {
			_, err := m.Move(t.Context(), path, t.TempDir(), session.MoveOptions{})
			return err
		},
		"removed": func(m *session.Manager, path string) error {
			_, err := m.Trash(t.Context(), path)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHome(t)
			fill(t, h.m)
			logs := map[string]bool{}
			for _, s := range must(h.m.List(t.Context(), "")).Sessions {
				logs[s.Path] = true
			}
			if len(logs) < 2 {
				t.Fatalf("there are %d sessions", len(logs))
			}
			last := slices.Max(slices.Collect(maps.Keys(logs)))
			done := false
			found, sum := examine(t, h.m, doctor.Options{Progress: func(int64) {
				if !done {
					done = true
					if err := away(h.m, last); err != nil {
						t.Error(err)
					}
				}
			}})
			if len(found) > 0 || sum.Logs != 4 {
				t.Errorf("found %+v in %+v", found, sum)
			}
		})
	}
}

func TestNothingIsFoundInAHealthyHome(t *testing.T) {
	h := newHome(t)
	if _, err := h.m.Trash(t.Context(), fill(t, h.m).log); err != nil {
		t.Fatal(err)
	}
	before := contents(t, h.m.Home())
	found, sum := examine(t, h.m, doctor.Options{})
	if len(found) > 0 {
		t.Fatalf("found %+v", found)
	}
	if sum.Logs != 4 || sum.Artifacts != 2 || sum.Blobs != 1 || sum.Entries != 10 || sum.Unsealed+sum.Unsummed > 0 {
		t.Errorf("%+v", sum)
	}
	if found, _ := examine(t, h.m, doctor.Options{Repair: true}); len(found) > 0 {
		t.Fatalf("repair found %+v", found)
	}
	after := contents(t, h.m.Home())
	for path, was := range before {
		if after[path] != was {
			t.Errorf("%s was changed", path)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files, before %d", len(after), len(before))
	}
}

// damage is something that is wrong in a home, and what repair makes of it.
var damage = []struct {
	name  string
	hurt  func(t *testing.T, h *home)
	kinds []string
	// left are the kinds that a second run finds.
	left []string
}{
	{"a torn log", func(t *testing.T, h *home) { appendTo(t, h.log, `{"type":"mess`) }, []string{"torn"}, nil},
	{"a log without its header", func(t *testing.T, h *home) {
		data := must(os.ReadFile(h.log))
		write(t, h.log, string(data[bytes.IndexByte(data, '\n')+1:]))
	}, []string{"header"}, nil},
	{"garbage in the log of a subagent", func(t *testing.T, h *home) { appendTo(t, h.nested, "garbage\n") }, []string{"garbage"}, nil},
	{"an artifact with other bytes", func(t *testing.T, h *home) { flip(t, h.artifact, 17, 3) }, []string{doctor.KindArtifactCorrupt}, []string{doctor.KindArtifactCorrupt}},
	{"an artifact that was cut", func(t *testing.T, h *home) {
		if err := os.Truncate(h.artifact, 100); err != nil {
			t.Fatal(err)
		}
	}, []string{doctor.KindArtifactCorrupt}, []string{doctor.KindArtifactCorrupt}},
	{"an artifact that is gone", func(t *testing.T, h *home) { remove(t, h.artifact) }, []string{doctor.KindArtifactMissing}, []string{doctor.KindArtifactMissing}},
	{"an artifact that did not come along", func(t *testing.T, h *home) {
		remove(t, h.artifact)
		write(t, filepath.Join(h.dir, "0.missing"), "no space left\n")
	}, []string{doctor.KindArtifactMissing}, []string{doctor.KindArtifactMissing}},
	{"a provenance that says another checksum", func(t *testing.T, h *home) {
		replace(t, filepath.Join(h.dir, ".artifact-0.json"), `"crc32c":"`, `"crc32c":"0000`, 4)
	}, []string{doctor.KindProvenance}, nil},
	{"a provenance that is no JSON", func(t *testing.T, h *home) { write(t, filepath.Join(h.dir, ".artifact-0.json"), "{") }, []string{doctor.KindProvenance}, nil},
	{"no provenance", func(t *testing.T, h *home) { remove(t, filepath.Join(h.dir, ".artifact-0.json")) }, nil, nil},
	{"an artifact whose writer died", func(t *testing.T, h *home) {
		write(t, filepath.Join(h.dir, "1.bash.log"), "some output\n")
		host := must(os.Hostname())
		write(t, filepath.Join(h.dir, ".artifact-1.json"), fmt.Sprintf(`{"tool":"bash","created":"2026-11-20T20:17:07Z","host":%q,"bootId":"another","pid":1,"pidStart":1,"bytes":0,"lines":0}`, host))
	}, []string{doctor.KindArtifactOpen}, nil},
	{"a damaged line index", func(t *testing.T, h *home) { flip(t, filepath.Join(h.dir, ".index", "0.idx"), 20, 1) }, []string{doctor.KindLineIndex}, nil},
	{"a blob with other bytes", func(t *testing.T, h *home) { flip(t, h.blob, 99, 6) }, []string{doctor.KindBlobCorrupt}, []string{doctor.KindBlobMissing}},
	{"a blob that nobody cites with other bytes", func(t *testing.T, h *home) {
		write(t, filepath.Join(h.m.Home(), "blobs", strings.Repeat("ab", 32)), "what?")
	}, []string{doctor.KindBlobCorrupt}, nil},
	{"a blob that is encrypted", func(t *testing.T, h *home) {
		write(t, filepath.Join(h.m.Home(), "blobs", strings.Repeat("ab", 32)), blobstore.EncryptedMagic+"and ciphertext")
	}, []string{doctor.KindUnreadable}, []string{doctor.KindUnreadable}},
	{"a blob that is gone", func(t *testing.T, h *home) { remove(t, h.blob) }, []string{doctor.KindBlobMissing}, []string{doctor.KindBlobMissing}},
	{"a blob that is a directory", func(t *testing.T, h *home) {
		remove(t, h.blob)
		if err := os.Mkdir(h.blob, 0o700); err != nil {
			t.Fatal(err)
		}
	}, []string{doctor.KindUnreadable}, []string{doctor.KindUnreadable}},
	{"a damaged index of the log", func(t *testing.T, h *home) {
		write(t, strings.TrimSuffix(h.log, "jsonl")+"index", `{"version":3,"crc":"00000000"}`+"\n")
	}, []string{doctor.KindLogIndex}, nil},
	{"a damaged index of the log of an older version", func(t *testing.T, h *home) {
		write(t, strings.TrimSuffix(h.log, "jsonl")+"index", `{"version":2}`+"\n")
	}, nil, nil},
}

func TestEachDamageIsFoundAndRepairedAsFarAsItCanBe(t *testing.T) {
	for _, tt := range damage {
		t.Run(tt.name, func(t *testing.T) {
			h := newHome(t)
			backup := filepath.Join(t.TempDir(), "backup")
			if err := os.CopyFS(backup, os.DirFS(h.m.Home())); err != nil {
				t.Fatal(err)
			}
			tt.hurt(t, h)
			before := contents(t, h.m.Home())
			found, _ := examine(t, h.m, doctor.Options{})
			if !slices.Equal(kinds(found), tt.kinds) {
				t.Fatalf("found %+v", found)
			}
			after := contents(t, h.m.Home())
			for path, was := range before {
				if after[path] != was {
					t.Errorf("looking changed %s", path)
				}
			}
			if len(after) != len(before) {
				t.Errorf("looking made or removed files: %d, before %d", len(after), len(before))
			}
			mended, sum := examine(t, h.m, doctor.Options{Repair: true})
			if !slices.Equal(kinds(mended), tt.kinds) {
				t.Fatalf("repair found %+v", mended)
			}
			for i, f := range mended {
				if f.Repaired == f.Unmendable || f.Unmendable != found[i].Unmendable {
					t.Errorf("repaired: %+v, and before: %+v", f, found[i])
				}
			}
			if (sum.Unmendable > 0) != (len(tt.left) > 0) {
				t.Errorf("%+v", sum)
			}
			left, _ := examine(t, h.m, doctor.Options{})
			if !slices.Equal(kinds(left), tt.left) {
				t.Fatalf("a second run finds %+v", left)
			}
			if len(tt.left) == 0 || tt.left[0] == doctor.KindUnreadable {
				return
			}
			// Another home has what is lost here.
			could, _ := examine(t, h.m, doctor.Options{From: []string{backup}})
			for _, f := range could {
				if f.Unmendable || !strings.Contains(f.What, backup) {
					t.Errorf("%+v", f)
				}
			}
			elsewhere := contents(t, backup)
			if again, _ := examine(t, h.m, doctor.Options{Repair: true, From: []string{backup}}); len(again) != 1 || !again[0].Repaired {
				t.Fatalf("with another home: %+v", again)
			}
			if left, _ := examine(t, h.m, doctor.Options{}); len(left) > 0 {
				t.Fatalf("a run after that finds %+v", left)
			}
			for path, was := range contents(t, backup) {
				if elsewhere[path] != was {
					t.Errorf("%s, in the other home, was changed", path)
				}
			}
			name := must(filepath.Rel(h.m.Home(), h.artifact))
			if !bytes.Equal(must(os.ReadFile(h.artifact)), must(os.ReadFile(filepath.Join(backup, name)))) {
				t.Error("the artifact is not what it was")
			}
		})
	}
}

func TestABundleGivesBackWhatIsLost(t *testing.T) {
	h := newHome(t)
	s := must(h.m.View(t.Context(), h.log))
	file := filepath.Join(t.TempDir(), "s.agentrun")
	out := must(os.Create(file))
	must(bundle.Export(t.Context(), out, h.m, s, bundle.ExportOptions{}))
	if err := errors.Join(out.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	good := string(must(os.ReadFile(h.artifact)))
	flip(t, h.artifact, 3, 3)
	remove(t, h.blob)
	t.Setenv("TMPDIR", t.TempDir())
	var found []doctor.Finding
	d := must(doctor.New(t.Context(), h.m, doctor.Options{Repair: true, From: []string{file}, Report: func(f doctor.Finding) { found = append(found, f) }}))
	if err := errors.Join(d.Home(t.Context()), d.Close()); err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || !found[0].Repaired || !found[1].Repaired || !strings.Contains(found[0].What, "back from "+file) {
		t.Fatalf("%+v", found)
	}
	if left, _ := examine(t, h.m, doctor.Options{}); len(left) > 0 || string(must(os.ReadFile(h.artifact))) != good {
		t.Fatalf("a second run finds %+v", left)
	}
	if rest := must(os.ReadDir(os.TempDir())); len(rest) > 0 {
		t.Fatalf("left behind: %v", rest)
	}
}

func TestAMissingBlobNamesTheSessionsThatCiteIt(t *testing.T) {
	h := newHome(t)
	other := fill(t, h.m)
	remove(t, h.blob)
	found, _ := examine(t, h.m, doctor.Options{})
	if len(found) != 1 || !found[0].Unmendable {
		t.Fatalf("found %+v", found)
	}
	for _, path := range []string{h.log, other.log} {
		s := must(h.m.View(t.Context(), path))
		if !strings.Contains(found[0].What, s.ID()) {
			t.Errorf("%s is not named in %s", s.ID(), found[0].What)
		}
		s.Close()
	}
}

func TestADoctorOfSomeSessionsLooksAtTheBlobsThatTheyCite(t *testing.T) {
	h := newHome(t)
	write(t, filepath.Join(h.m.Home(), "blobs", strings.Repeat("ab", 32)), "nobody's")
	var found []doctor.Finding
	d := must(doctor.New(t.Context(), h.m, doctor.Options{Report: func(f doctor.Finding) { found = append(found, f) }}))
	if err := d.Sessions(t.Context(), h.log); err != nil || len(found) > 0 || d.Summary().Blobs != 1 {
		t.Fatalf("%v, %+v, %+v", err, found, d.Summary())
	}
	flip(t, h.blob, 5, 5)
	if err := must(doctor.New(t.Context(), h.m, doctor.Options{Report: func(f doctor.Finding) { found = append(found, f) }})).Sessions(t.Context(), h.log); err != nil || len(found) != 1 {
		t.Fatalf("%v, %+v", err, found)
	}
}

func TestAnExaminationEndsWithItsContext(t *testing.T) {
	h := newHome(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := must(doctor.New(t.Context(), h.m, doctor.Options{})).Home(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v", err)
	}
}

func TestAPlaceToLookInThatIsNotThereIsRefused(t *testing.T) {
	h := newHome(t)
	for _, place := range []string{filepath.Join(t.TempDir(), "nowhere"), h.log, "/dev/null"} {
		if _, err := doctor.New(t.Context(), h.m, doctor.Options{From: []string{place}}); err == nil || !strings.Contains(err.Error(), place) {
			t.Errorf("%s: %v", place, err)
		}
	}
}

// rounds is how many bits are flipped: AGENTRUN_TEST_FLIPS, else few enough for
// everyday runs.
func rounds(t *testing.T) int {
	if n := os.Getenv("AGENTRUN_TEST_FLIPS"); n != "" {
		return must(strconv.Atoi(n))
	}
	if testing.Short() {
		return 60
	}
	return 300
}

func TestEveryFlippedBitInLogsArtifactsAndBlobsIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("reads a home again for each bit; run without -short")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	h := newHome(t)
	files := []string{h.log, h.nested, h.artifact, h.blob}
	for range rounds(t) {
		path := files[r.IntN(len(files))]
		good := must(os.ReadFile(path))
		at, bit := r.IntN(len(good)), r.IntN(8)
		flip(t, path, at, bit)
		found, _ := examine(t, h.m, doctor.Options{})
		if !slices.ContainsFunc(found, func(f doctor.Finding) bool { return f.File == path }) {
			t.Fatalf("bit %d of byte %d of %s: found %+v", bit, at, path, found)
		}
		write(t, path, string(good))
	}
	if found, _ := examine(t, h.m, doctor.Options{}); len(found) > 0 {
		t.Fatalf("in the end: %+v", found)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, content string) {
	t.Helper()
	write(t, path, string(must(os.ReadFile(path)))+content)
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func flip(t *testing.T, path string, at, bit int) {
	t.Helper()
	data := must(os.ReadFile(path))
	data[at] ^= 1 << bit
	write(t, path, string(data))
}

// replace puts text in the place of a text and the n bytes behind it.
func replace(t *testing.T, path, old, text string, n int) {
	t.Helper()
	data := string(must(os.ReadFile(path)))
	i := strings.Index(data, old)
	write(t, path, data[:i]+text+data[i+len(old)+n:])
}
