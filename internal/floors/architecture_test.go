package floors_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// architecture returns ARCHITECTURE.md and the root of the module.
func architecture(t *testing.T) (text, root string) {
	t.Helper()
	out, err := run(".", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		t.Fatal(err)
	}
	root = strings.TrimSpace(out)
	data, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data), root
}

func TestArchitectureDrawsTheImportsThereAre(t *testing.T) {
	text, _ := architecture(t)
	_, block, ok := strings.Cut(text, "```imports\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("ARCHITECTURE.md has no block of imports")
	}
	drawn := map[string]string{}
	for line := range strings.Lines(block) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		drawn[name] = strings.TrimSpace(imports)
	}
	all := packages(t)
	for _, p := range sorted(all) {
		if _, known := floorOf[p.name()]; !p.ours() || !known {
			continue
		}
		var imports []string
		for _, path := range p.Imports {
			if strings.HasPrefix(path, module) {
				imports = append(imports, strings.TrimPrefix(path, module))
			}
		}
		slices.Sort(imports)
		want := strings.Join(imports, " ")
		if got, ok := drawn[p.name()]; !ok || got != want {
			t.Errorf("ARCHITECTURE.md draws %q, and the code has\n%s: %s", got, p.name(), want)
		}
		delete(drawn, p.name())
	}
	for name := range drawn {
		t.Errorf("ARCHITECTURE.md draws %s, which is on no floor", name)
	}
}

func TestArchitectureHasAReasonForEachDependency(t *testing.T) {
	text, root := architecture(t)
	_, section, _ := strings.Cut(text, "\n## Dependencies\n")
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v\\S+) \\| \\S").FindAllStringSubmatch(section, -1) {
		listed[row[1]] = row[2]
	}
	out, err := run(root, "mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	if err := json.Unmarshal([]byte(out), &mod); err != nil {
		t.Fatal(err)
	}
	direct := map[string]string{}
	for _, m := range mod.Require {
		if !m.Indirect {
			direct[m.Path] = m.Version
		}
	}
	if len(direct) == 0 {
		t.Fatal("go.mod has no direct dependency")
	}
	if !maps.Equal(listed, direct) {
		t.Errorf("ARCHITECTURE.md lists %v, and go.mod has %v", listed, direct)
	}
}
