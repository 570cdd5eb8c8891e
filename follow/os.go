package follow

import "os"

// exists reports whether a directory is there.
func exists(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}
