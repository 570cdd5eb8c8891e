package supervisor

import (
	"github.com/agentrun/agentrun/outputsink"
	"github.com/agentrun/agentrun/tool/bash"
)

// What is JSON on its way from the supervisor to a client, where the JSON of a type is for people or an error is in it.

// movedFrame is a bash.Moved.
type movedFrame struct {
	bash.Start
	Entry   string
	Summary sentSummary
	Err     string
}

// resultFrame is how a script in the foreground ended.
type resultFrame struct {
	sentResult
	Err string
}

// sentResult is a bash.Result without its errors: a shell that can not be started is one of the frame.
type sentResult struct {
	bash.Result
	Start, LiveErr struct{} // in the place of errors
	Summary        sentSummary
	Streams        *sentStreams
}

type sentStreams struct {
	bash.Separated
	Stdout, Stderr sentSummary
}

// sentSummary is an outputsink.Summary without the index, which is in a file by now.
type sentSummary struct {
	outputsink.Summary
	Index         struct{}
	ArtifactState sentState
}

type sentState struct {
	Kind       outputsink.ArtifactKind
	Head, Tail int64
	Reason     string
}

func sendable(r *bash.Result) sentResult {
	s := sentResult{Result: *r, Summary: sendableSummary(&r.Summary)}
	if a := r.Streams; a != nil {
		s.Streams = &sentStreams{*a, sendableSummary(&a.Stdout), sendableSummary(&a.Stderr)}
	}
	return s
}

func sendableSummary(s *outputsink.Summary) sentSummary {
	a := &s.ArtifactState
	return sentSummary{Summary: *s, ArtifactState: sentState{a.Kind, a.Head, a.Tail, a.Reason}}
}

func (s *sentResult) received() bash.Result {
	r := s.Result
	r.Summary = s.Summary.received()
	if a := s.Streams; a != nil {
		apart := a.Separated
		apart.Stdout, apart.Stderr = a.Stdout.received(), a.Stderr.received()
		r.Streams = &apart
	}
	return r
}

func (s *sentSummary) received() outputsink.Summary {
	out, a := s.Summary, s.ArtifactState
	out.ArtifactState = outputsink.ArtifactState{Kind: a.Kind, Head: a.Head, Tail: a.Tail, Reason: a.Reason}
	return out
}
