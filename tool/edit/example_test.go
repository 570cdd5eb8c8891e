package edit_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/agentrun/agentrun/tool/edit"
	"github.com/agentrun/agentrun/tool/workspace"
)

// A word of a file is exchanged, and the difference shown.
func ExampleDo() {
	dir, err := os.MkdirTemp("", "project")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "greeting"), []byte("good\nmorning\n"), 0o644); err != nil {
		log.Fatal(err)
	}
	w, err := workspace.Open(workspace.Options{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	res, err := edit.Do(context.Background(), w, edit.Request{
		Path:  "greeting",
		Edits: []edit.Edit{{Old: "morning", New: "evening"}},
	}, edit.Output{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(res.Text())
	// Output:
	// --- greeting
	// +++ greeting
	// @@ -1,2 +1,2 @@
	//  good
	// -morning
	// +evening
}
