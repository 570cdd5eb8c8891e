package script

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"time"

	"github.com/agentrun/agentrun/internal/strictjson"
	"github.com/agentrun/agentrun/model"
)

// Bounds of a script.
const (
	MaxSize  = 64 << 20 // of the whole, in bytes
	MaxLines = 100_000
	MaxSteps = 4096 // of a line, those in parallel included
	MaxAgent = 256  // of an agent's id, in bytes
	MaxDelay = 24 * time.Hour
	MaxTimes = 1_000_000
)

// Model plays a script. It is safe for concurrent use.
type Model struct {
	name  string
	info  model.Info
	parts map[string]*part // by agent, or pattern
	globs []string         // the patterns, in their order

	mu     sync.Mutex
	asked  map[place]int // how often the tries before a turn were played
	played map[int]bool  // by number of line
}

var _ model.Model = (*Model)(nil)

// place is a turn of an agent.
type place struct {
	agent string
	turn  int
}

// part is what one agent does.
type part struct {
	turns []turn
	last  int // number of the last line
}

// turn is a line that ends, and the lines that fail before it.
type turn struct {
	tries []numbered
	line  *numbered // nil behind the last line that ends
	first int       // the first turn that it answers
	count int       // how many, -1 for all that follow
}

// numbered is a line and its number in the file.
type numbered struct {
	Line
	number int
}

// New reads a script to its end. The name is that of its file; it stands in errors.
func New(name string, r io.Reader) (*Model, error) {
	m := &Model{
		name: name,
		info: model.Info{
			Provider: "script", API: model.APIScript, ID: path.Base(name), ContextWindow: 200_000, Thinks: true,
		},
		parts: map[string]*part{}, asked: map[place]int{}, played: map[int]bool{},
	}
	limited := &io.LimitedReader{R: r, N: MaxSize + 1}
	lines := bufio.NewReader(limited)
	for number := 1; ; number++ {
		raw, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("reading script %s: %w", name, err)
		}
		if limited.N == 0 {
			return nil, fmt.Errorf("reading script %s: it is larger than %d MiB", name, MaxSize>>20)
		}
		if number > MaxLines {
			return nil, fmt.Errorf("reading script %s: it has more than %d lines", name, MaxLines)
		}
		if line := bytes.TrimSpace(raw); len(line) > 0 {
			if err := m.add(number, line); err != nil {
				return nil, fmt.Errorf("reading script %s: line %d: %w", name, number, err)
			}
		}
		if err != nil {
			break
		}
	}
	if len(m.parts) == 0 {
		return nil, fmt.Errorf("reading script %s: it has no lines", name)
	}
	return m, nil
}

// add takes a line in.
func (m *Model) add(number int, raw []byte) error {
	if number == 1 && bytes.Contains(raw[:min(len(raw), 64)], []byte(`"script"`)) {
		return m.head(raw)
	}
	n := &numbered{number: number}
	if err := strictjson.Decode(raw, &n.Line); err != nil {
		return err
	}
	steps := len(n.Say)
	for _, s := range n.Say {
		steps += len(s.Parallel)
	}
	if steps > MaxSteps {
		return fmt.Errorf("it has more than %d steps", MaxSteps)
	}
	if err := n.check(); err != nil {
		return err
	}
	p := m.parts[n.Agent]
	if p == nil {
		p = &part{}
		m.parts[n.Agent] = p
		if n.pattern() {
			m.globs = append(m.globs, n.Agent)
		}
	}
	return p.add(n)
}

func (m *Model) head(raw []byte) error {
	var h Head
	if err := strictjson.Decode(raw, &h); err != nil {
		return err
	}
	if h.Script != Version {
		return fmt.Errorf("the script is of version %d, and this program reads version %d", h.Script, Version)
	}
	i := &m.info
	if h.Model.ID != "" {
		i.ID = h.Model.ID
	}
	if h.Model.ContextWindow < 0 || h.Model.MaxOutput < 0 {
		return errors.New("contextWindow and maxOutput count tokens")
	}
	if h.Model.ContextWindow > 0 {
		i.ContextWindow = h.Model.ContextWindow
	}
	i.MaxOutput, i.Prices, i.Images = h.Model.MaxOutput, h.Model.Prices, h.Model.Images
	return nil
}

func (p *part) add(n *numbered) error {
	p.last = n.number
	var open *turn // the one that has tries and no line yet
	if len(p.turns) > 0 && p.turns[len(p.turns)-1].line == nil {
		open = &p.turns[len(p.turns)-1]
	} else {
		first := 0
		if len(p.turns) > 0 {
			before := p.turns[len(p.turns)-1]
			if before.count < 0 {
				return fmt.Errorf("line %d of the same agent is played for ever, so this one never is", before.line.number)
			}
			first = before.first + before.count
		}
		p.turns = append(p.turns, turn{first: first})
		open = &p.turns[len(p.turns)-1]
	}
	if len(open.tries) > 0 && open.tries[len(open.tries)-1].Times < 0 {
		return fmt.Errorf("line %d of the same agent is played for ever, so this one never is", open.tries[len(open.tries)-1].number)
	}
	if !n.ends() {
		open.tries = append(open.tries, *n)
		return nil
	}
	open.line, open.count = n, n.Times
	if open.count == 0 {
		open.count = 1
	}
	return nil
}

// Info says what the model is.
func (m *Model) Info() model.Info { return m.info }

// Unplayed are the numbers of the lines that were not played in this process, in
// ascending order: a test asks at its end.
func (m *Model) Unplayed() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var numbers []int
	note := func(n numbered) {
		if !m.played[n.number] {
			numbers = append(numbers, n.number)
		}
	}
	for _, p := range m.parts {
		for _, t := range p.turns {
			for _, n := range t.tries {
				note(n)
			}
			if t.line != nil {
				note(*t.line)
			}
		}
	}
	slices.Sort(numbers)
	return numbers
}

// part finds what an agent does.
func (m *Model) part(agent string) *part {
	if p := m.parts[agent]; p != nil {
		return p
	}
	for _, glob := range m.globs {
		if ok, _ := path.Match(glob, agent); ok {
			return m.parts[glob]
		}
	}
	return nil
}

// line is the line to be played for a request.
func (m *Model) line(agent string, at int) (*numbered, error) {
	p := m.part(agent)
	if p == nil {
		return nil, fmt.Errorf("%s has no line for agent %.80q", m.name, agent)
	}
	i, _ := slices.BinarySearchFunc(p.turns, at, func(t turn, at int) int {
		switch {
		case t.count < 0 && at >= t.first || t.line == nil && at >= t.first:
			return 0
		case at < t.first:
			return 1
		case at >= t.first+t.count:
			return -1
		}
		return 0
	})
	if i == len(p.turns) || at < 0 {
		return nil, m.over(agent, at, p)
	}
	t := &p.turns[i]
	m.mu.Lock()
	defer m.mu.Unlock()
	n := t.line
	if at == t.first || t.line == nil {
		here := place{agent, at}
		left := m.asked[here]
		for k := range t.tries {
			try := &t.tries[k]
			if left < max(try.Times, 1) || try.Times < 0 {
				m.asked[here]++
				n = try
				break
			}
			left -= max(try.Times, 1)
		}
	}
	if n == nil {
		return nil, m.over(agent, at, p)
	}
	m.played[n.number] = true
	return n, nil
}

// over is the error of an agent that asks for more than there is.
func (m *Model) over(agent string, at int, p *part) error {
	return fmt.Errorf("%s has no answer for turn %d of agent %.80q: its last line is line %d", m.name, at, agent, p.last)
}
