package main

import "github.com/agentrun/agentrun/tool/bash"

// separatedResult is what --json prints with --streams or --timestamps.
type separatedResult struct {
	runResult
	Stdout  string  `json:"stdout"`
	Stderr  string  `json:"stderr"`
	Pieces  []piece `json:"pieces,omitempty"`
	Omitted int64   `json:"piecesOmitted,omitempty"` // bytes behind the pieces
}

// piece is what one stream wrote at once.
type piece struct {
	Stream string  `json:"stream"`
	MS     float64 `json:"ms"` // since the start
	Text   string  `json:"text"`
}

func (r *commandRun) withStreams(all runResult, s *bash.Separated) any {
	if s == nil {
		return all
	}
	out := separatedResult{runResult: all, Stdout: s.Stdout.Text, Stderr: s.Stderr.Text}
	if r.timestamps {
		out.Omitted = s.Omitted
		for _, p := range s.Pieces {
			out.Pieces = append(out.Pieces, piece{p.Stream, float64(p.At.Microseconds()) / 1000, p.Text})
		}
	}
	return out
}
