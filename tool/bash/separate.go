package bash

import (
	"io"
	"sync"
	"time"

	"github.com/agentrun/agentrun/outputsink"
)

// MaxPieces bounds the text of Separated.Pieces, in bytes.
const MaxPieces = outputsink.DefaultMaxBytes

// Separated are the two streams of a run, each bounded and sanitised as the view of both.
type Separated struct {
	Stdout, Stderr outputsink.Summary
	// Pieces are what came, in the order of arrival, up to MaxPieces; Omitted is how many bytes came behind them.
	Pieces  []Piece
	Omitted int64
}

// Piece is what was read of one stream at once.
type Piece struct {
	Stream string        // "stdout" or "stderr"
	At     time.Duration // since the command was started
	Text   string        // as the command wrote it
}

// separator notes which stream the output is of, on its way to the one writer of both.
type separator struct {
	mu     sync.Mutex
	to     io.Writer
	began  time.Time
	room   int
	result Separated
	sinks  [2]*outputsink.Sink
}

func newSeparator(to io.Writer, o outputsink.Options) *separator {
	o.Open, o.Spill = nil, false
	return &separator{to: to, began: time.Now(), room: MaxPieces, sinks: [2]*outputsink.Sink{outputsink.New(o), outputsink.New(o)}}
}

// streams of a separator.
const (
	stdout = iota
	stderr
)

var streamNames = [...]string{stdout: "stdout", stderr: "stderr"}

// side is the writer of one stream.
type side struct {
	*separator
	stream int
}

func (s side) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(b), s.room)
	if n > 0 {
		s.result.Pieces = append(s.result.Pieces, Piece{streamNames[s.stream], time.Since(s.began), string(b[:n])})
		s.room -= n
	}
	s.result.Omitted += int64(len(b) - n)
	_, _ = s.sinks[s.stream].Stdout().Write(b) // gives no error before it is closed
	return s.to.Write(b)
}

// end returns what came.
func (s *separator) end() *Separated {
	s.result.Stdout, _ = s.sinks[stdout].Close() // without a file there is nothing to fail
	s.result.Stderr, _ = s.sinks[stderr].Close()
	return &s.result
}
