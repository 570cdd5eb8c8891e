package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/agentrun/agentrun/internal/durable"
	"github.com/agentrun/agentrun/internal/withhold"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/model/record"
	"github.com/agentrun/agentrun/redact"
	"github.com/agentrun/agentrun/session"
)

// models are those that the agents of a run ask.
type models struct {
	first model.Model
	open  func(name string) (model.Model, error)
	close func()
}

// recording gives a run its models, which are recorded where --record says so. Secrets are replaced in the script as they are
// in the session, and also where there they are not: it is made to be handed on.
func (c *agentCommand) recording(first model.Model, s *session.Session) (*models, error) {
	plain := &models{first, c.openModel, func() {}}
	if c.record == "" {
		return plain, nil
	}
	there := fmt.Errorf("recording the conversation: %s is there already: name a file that is not", c.record)
	if c.apart { // who resumes the run makes it
		if _, err := os.Lstat(c.record); err == nil {
			return nil, there
		}
		return plain, nil
	}
	file, err := durable.CreateExclusive(nil, c.record)
	if errors.Is(err, fs.ErrExist) {
		return nil, there
	}
	if err != nil {
		return nil, fmt.Errorf("recording the conversation: %w", err)
	}
	secrets := s.Redactor()
	if secrets == nil {
		secrets = redact.New(redact.Options{Values: withhold.Values(), Number: redact.Count(0)})
	}
	tape := record.New(first, file, record.Options{Redact: func(text []byte) []byte {
		clean, _ := secrets.Text(text)
		return clean
	}})
	head, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("recording the conversation: %w", err), file.Close())
	}
	return &models{
		first: tape,
		open: func(name string) (model.Model, error) {
			m, err := c.openModel(name)
			if err != nil {
				return nil, err
			}
			return tape.Beside(m), nil
		},
		close: func() {
			if all, err := file.Stat(); err == nil && all.Size() == head.Size() { // nothing was said
				_ = durable.OS.Remove(c.record)
			}
			if err := errors.Join(tape.Err(), file.Close()); err != nil {
				c.say("the script %s is not whole: %v", c.record, err)
			}
		},
	}, nil
}
