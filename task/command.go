package task

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/agent/permission"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session/entry"
	"github.com/agentrun/agentrun/tool/bash"
)

// RunnerCommand is the runner of a type that is another program.
const RunnerCommand = "command"

// promptMark stands in a command for the prompt.
const promptMark = "{prompt}"

// printedNothing is the answer of a program that printed nothing; an answer has a text.
const printedNothing = "(it printed nothing)"

// maxPromptArgument is the longest prompt that fits into an argument, in bytes; a longer one goes to the standard input of a
// command without promptMark only. Linux takes 128 KiB.
const maxPromptArgument = 120 << 10

// program is another program in the place of a model: it is asked once, and answers when it ends. Its run is in the log of
// the subagent, like those of the tool bash, and is never made again for one that a crash cut off.
type program struct {
	tree *Tree
	of   Subagent

	cut  bool   // it was cut off by a crash
	said string // what it printed at last
	// structured is what it answered as its own schema says, nil without one.
	structured json.RawMessage
}

// Info implements [model.Model].
func (p *program) Info() model.Info {
	return model.Info{Provider: RunnerCommand, API: RunnerCommand, ID: p.of.Type.Name}
}

// Stream runs the program.
func (p *program) Stream(ctx context.Context, req *model.Request) iter.Seq2[model.Event, error] {
	return model.Assemble(ctx, p.Info(), req, func(ctx context.Context, a *model.Answer) error {
		res, err := p.before(ctx)
		if err == nil && res == nil {
			res, err = p.run(ctx, promptOf(req.Messages))
		}
		if ctx.Err() != nil {
			p.note(context.WithoutCancel(ctx), res)
			return ctx.Err()
		}
		if err != nil {
			return p.no(err)
		}
		w := p.note(ctx, res)
		if err := a.Usage(w.usage); err != nil {
			return err
		}
		switch {
		case w.failed != "":
			return p.no(fmt.Errorf("it says that it failed: %.300s", w.failed))
		case res.code != 0:
			return p.no(fmt.Errorf("it ended with status %d%s", res.code, res.whole()))
		}
		if err := a.Text(0, cmp.Or(p.said, printedNothing)); err != nil {
			return err
		}
		return a.Finish(entry.StopStop)
	})
}

// no is an error that no other try mends.
func (p *program) no(err error) error {
	if passes(err) {
		return err
	}
	return &model.Error{Kind: model.KindInvalid, Message: "the program of " + p.of.Type.Name + " gave no answer: " + err.Error(), Err: err}
}

// printed is what came of a run.
type printed struct {
	view     string
	artifact *int64
	code     int
}

func (r *printed) whole() string {
	if r.artifact == nil {
		return ""
	}
	return fmt.Sprintf("; all that it printed is artifact://%d", *r.artifact)
}

// note reads what was said at last.
func (p *program) note(ctx context.Context, r *printed) lastWord {
	if r == nil {
		return lastWord{}
	}
	p.said = strings.TrimRight(r.view, "\n")
	var in io.Reader = strings.NewReader(r.view)
	if r.artifact != nil {
		f, err := p.tree.o.Artifacts.Open(ctx, *r.artifact)
		if err != nil {
			return lastWord{}
		}
		defer f.Close()
		n, err := f.Size()
		if err != nil {
			return lastWord{}
		}
		in = io.NewSectionReader(f, 0, n)
	}
	w, err := readLastWord(in)
	if err == nil && w.known {
		p.said, p.structured = w.text, w.structured
	}
	return w
}

// run runs the program, if the rules let it.
func (p *program) run(ctx context.Context, prompt string) (*printed, error) {
	argv, stdin := slices.Clone(p.of.Type.Command), prompt
	for i, arg := range argv {
		if strings.Contains(arg, promptMark) {
			argv[i], stdin = strings.ReplaceAll(arg, promptMark, prompt), ""
			if len(argv[i]) > maxPromptArgument {
				return nil, fmt.Errorf("its prompt has %d bytes, and an argument %d at most: leave %s out of its command, which then reads the prompt from the standard input", len(prompt), maxPromptArgument, promptMark)
			}
		}
	}
	if err := p.allowed(ctx, argv); err != nil {
		return nil, err
	}
	res, err := p.tree.o.Command(ctx, p.of, argv, stdin)
	r := &printed{view: res.Summary.View, code: res.Code}
	if res.Finish.Artifact != nil {
		r.artifact = &res.Finish.Artifact.ID
	}
	return r, cmp.Or(err, res.Start)
}

// allowed asks the rules as for a call of the tool bash with the same words.
func (p *program) allowed(ctx context.Context, argv []string) error {
	if p.tree.o.Rules == nil {
		return nil
	}
	arguments, err := json.Marshal(map[string]string{"command": bash.Quote(argv)})
	if err != nil {
		return err
	}
	d := permission.Decide(p.of.Dir, p.tree.o.Rules, "bash", arguments)
	if d.Action == permission.Ask && p.tree.o.Ask != nil {
		yes, err := p.tree.o.Ask(ctx, agent.Question{Agent: p.of.ID.String(), Tool: "bash", Arguments: arguments, Decision: d})
		if err != nil {
			return fmt.Errorf("it was not run: %s, and nobody could be asked: %w", d, err)
		}
		if yes {
			return nil
		}
		return fmt.Errorf("it was not run: %s, and the answer was no", d)
	}
	if d.Action != permission.Allow {
		return fmt.Errorf("it was not run: %s", d)
	}
	return nil
}

// before finds the run of this prompt that a crash has cut off from its answer, or cut off.
func (p *program) before(ctx context.Context) (*printed, error) {
	var ends []entry.BashExecutionMessage
	for e, err := range p.of.Session.Backward(ctx) {
		if err != nil {
			return nil, err
		}
		if e.Role() == entry.RoleUser || e.Role() == entry.RoleAssistant {
			return nil, nil
		}
		if _, ok := bash.EndOf(e); ok {
			body, err := e.Body()
			if m, ok := body.(entry.BashExecutionMessage); ok && err == nil {
				ends = append(ends, m)
			}
			continue
		}
		start, ok := bash.StartOf(e)
		if !ok {
			continue
		}
		for _, m := range ends {
			var f bash.Finish
			if json.Unmarshal(m.Details, &f) != nil || f.Run != start.Run || m.ExitCode == nil || m.Cancelled {
				continue
			}
			r := &printed{view: m.Output, code: *m.ExitCode}
			if f.Artifact != nil {
				r.artifact = &f.Artifact.ID
			}
			return r, nil
		}
		p.cut = true
		r := &printed{artifact: start.Artifact}
		if info, ok, err := p.tree.o.Artifacts.ByRun(ctx, start.Run); err == nil && ok {
			r.artifact = &info.ID
		}
		p.note(ctx, r)
		return nil, fmt.Errorf("it was cut off by a crash, and is not run again, for it may have done something%s", r.whole())
	}
	return nil, nil
}

// promptOf is what was said behind the last answer.
func promptOf(messages []entry.Message) string {
	var parts []string
	for _, m := range slices.Backward(messages) {
		if _, ok := m.(entry.AssistantMessage); ok {
			break
		}
		if m, ok := m.(entry.UserMessage); ok {
			parts = append(parts, m.Content.Text())
		}
	}
	slices.Reverse(parts)
	return strings.Join(parts, "\n\n")
}

// judgeProgram makes what a program said the result, of a subagent with a schema.
func (j *job) judgeProgram(r *report, structured json.RawMessage) {
	text := cmp.Or(string(structured), strings.TrimSpace(r.text))
	if inner, ok := strings.CutPrefix(text, "```json\n"); ok {
		text = strings.TrimSuffix(inner, "```")
	}
	var value any
	err := json.Unmarshal([]byte(text), &value)
	if err == nil {
		r.result = []byte(text)
		err = j.schema.Validate(value)
	}
	if err != nil && r.end.Status == Completed {
		r.end.Status, r.end.Reason = BadAnswer, fmt.Sprintf("what it said is not as its schema says: %s", firstLine(err.Error()))
	}
}

// checkRunner says why a type's program cannot be run.
func (t *Tree) checkRunner(typ Type) error {
	if typ.Runner == RunnerCommand && t.o.Command == nil {
		return errors.New("its agent is another program, and none can be run here")
	}
	return nil
}
