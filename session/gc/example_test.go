package gc_test

import (
	"context"
	"fmt"
	"os"

	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/gc"
)

// A dry run says what could be freed. With Apply the same call frees it.
func Example() {
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(home)
	m, err := session.OpenManager(home, session.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	report, err := gc.Run(context.Background(), m, gc.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(report.Blobs.Count, "blobs,", report.Trash.Count, "sessions in the trash")
	// Output: 0 blobs, 0 sessions in the trash
}
