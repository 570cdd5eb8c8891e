package conversation

import (
	"io"
	"math"

	"github.com/agentrun/agentrun/conversation/internal/sidecar"
)

// pieceBytes is how long the pieces of a file beside the log are.
const pieceBytes = 1 << 20

var errEnd = io.EOF

// Read implements io.Reader.
func (r *FileReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 && r.err == nil {
		r.next()
	}
	if r.err != nil {
		return 0, r.err
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}

// parseFiles reads the list of files of a sidecar.
func parseFiles(data []byte) ([]File, error) {
	list, err := sidecar.ParseFiles(data)
	if err != nil {
		return nil, err
	}
	files := make([]File, len(list))
	for i, f := range list {
		files[i] = File{Name: f.Name, Bytes: int64(min(f.Bytes, math.MaxInt64)), Pieces: f.Pieces}
	}
	return files, nil
}
