package runview

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/model"
)

const (
	// pace is the least time between two pictures: a terminal shows no more, and the first after a pause comes at once.
	pace = 8 * time.Millisecond
	// tick is how often the times in the tree are looked at.
	tick = time.Second

	// together has terminals that know it show what comes as one picture (mode 2026); others pass over it.
	together, shown = "\x1b[?2026h", "\x1b[?2026l"
)

// Live shows a run at a terminal: text and a row for each finished call scroll, the agents stay below. It writes from the
// first event on and until Close, and leaves the terminal's modes alone. It is safe for concurrent use.
type Live struct {
	out      io.Writer
	size     func() (columns, rows int)
	coloured bool
	now      func() time.Time

	mu      sync.Mutex // guards all below
	tree    Tree
	text    Text
	line    string          // the last row of text, which is not complete
	above   strings.Builder // what scrolls, and was not written yet
	later   []Row           // what scrolls when the line has ended
	widths  []int           // of the rows that will be drawn over
	width   int             // of the terminal at the last picture
	last    time.Time       // of the last picture
	timer   *time.Timer     // for the next one
	held    bool            // nothing is drawn while a person is asked
	closed  bool
	subject map[string]string // what calls are about, by agent and id

	stop chan struct{}
	done sync.WaitGroup
}

// NewLive returns a view that writes to a terminal whose size is asked for when it matters.
func NewLive(out io.Writer, size func() (columns, rows int), coloured bool) *Live {
	l := &Live{out: out, size: size, coloured: coloured, now: time.Now, subject: map[string]string{}, stop: make(chan struct{})}
	l.done.Go(func() {
		t := time.NewTicker(tick)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				l.Redraw()
			case <-l.stop:
				return
			}
		}
	})
	return l
}

// Redraw draws the rows anew, as after a change of the terminal's size.
func (l *Live) Redraw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw()
}

// Observe takes an event of an agent.
func (l *Live) Observe(id string, e agent.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tree.Observe(id, e, l.now())
	main := id == agent.MainID
	switch e := e.(type) {
	case agent.Answering:
		delta, ok := e.Event.(model.TextDelta)
		if !ok || !main {
			return
		}
		l.write(l.text.Add(delta.Text))
	case agent.Answered:
		if main {
			l.endText()
		}
		for _, call := range e.Message.Content.ToolCalls() { // one that is refused is not started
			l.subject[id+"\n"+call.ID] = Subject(call.Arguments)
		}
	case agent.CallStarted:
		l.subject[id+"\n"+e.ID] = Subject(e.Arguments)
	case agent.CallFinished:
		about := l.subject[id+"\n"+e.ID]
		delete(l.subject, id+"\n"+e.ID)
		l.row(CallRow(id, about, e, l.columns()))
		if reason := Reason(e.Result); reason != "" {
			l.row(ReasonRow(reason).Fit(l.columns()))
		}
	default:
		if _, over := e.(agent.Ended); main && (over || isRetry(e)) {
			l.endText()
		}
		if row := Remark(id, e); row != nil {
			l.row(row)
		}
	}
	l.drawSoon()
}

func isRetry(e agent.Event) bool {
	_, ok := e.(agent.Retrying)
	return ok
}

// Remark is what is said of an event in a row of its own; nil for most.
func Remark(id string, e agent.Event) Row {
	text := ""
	switch e := e.(type) {
	case agent.Retrying:
		text = fmt.Sprintf("%s: %v; trying again in %s%s", id, e.Err, Duration(e.Wait), Tries(e))
	case agent.Heard:
		text = fmt.Sprintf("%s was told: %s", id, e.Text)
	case agent.ModeChanged:
		text = fmt.Sprintf("%s: the mode is %s", id, e.Mode)
	case agent.Warned:
		text = e.Text
	case agent.Compacted:
		text = fmt.Sprintf("%s: the context was compacted (%s tokens before)", id, Count(e.Tokens))
	case agent.Reported:
		if e.Status == string(agent.Completed) {
			return nil
		}
		text = fmt.Sprintf("%s: %s", id, e.Status)
		if e.Reason != "" {
			text += ": " + e.Reason
		}
	default:
		return nil
	}
	return Row{{Clean(text), Amber}}
}

// Write shows remarks of the program, whole lines: what else is written to the terminal meanwhile.
func (l *Live) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return l.out.Write(p)
	}
	for text := range strings.Lines(string(p)) {
		l.row(Row{{CleanLines(strings.TrimSuffix(text, "\n")), Plain}})
	}
	l.draw()
	return len(p), nil
}

// Hold has the rows below taken off the terminal and nothing drawn until the function that it returns is called, so
// that a person can be asked.
func (l *Live) Hold() (resume func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endText()
	l.erase()
	l.held = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.held = false
		l.draw()
	}
}

// Close ends the view. The agents stay on the terminal if there were several.
func (l *Live) Close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.held = false
	l.endText()
	if l.tree.Children() > 0 {
		columns, _ := l.size()
		for _, r := range l.tree.Rows(columns-1, len(l.tree.order), l.now()) {
			l.row(r)
		}
	}
	l.erase()
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.stop)
	l.mu.Unlock()
	l.done.Wait()
}

// write adds text of the agent, which is harmless.
func (l *Live) write(text string) {
	columns := l.columns()
	for piece := range strings.Lines(text) {
		whole, ends := strings.CutSuffix(piece, "\n")
		rows := Wrap(l.line+whole, columns)
		for _, r := range rows[:len(rows)-1] {
			l.above.WriteString(r + "\r\n") // where terminals break a row of wide characters by themselves they differ
		}
		if l.line = rows[len(rows)-1]; ends {
			l.above.WriteString(l.line + "\r\n")
			l.line = ""
			for _, r := range l.later {
				l.above.WriteString(r.Render(l.coloured) + "\r\n")
			}
			l.later = nil
		}
	}
}

// endText ends the line that the agent is at.
func (l *Live) endText() {
	l.write(l.text.End())
	if l.line != "" {
		l.write("\n")
	}
}

// row adds a row that scrolls. It comes behind the line that the agent is at.
func (l *Live) row(r Row) {
	if l.line != "" {
		l.later = append(l.later, r)
		return
	}
	l.above.WriteString(r.Render(l.coloured) + "\r\n")
}

func (l *Live) columns() int {
	columns, _ := l.size()
	return columns
}

// drawSoon draws now, or when the last picture was long enough ago.
func (l *Live) drawSoon() {
	wait := pace - l.now().Sub(l.last)
	switch {
	case wait <= 0:
		l.draw()
	case l.timer == nil:
		l.timer = time.AfterFunc(wait, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.timer = nil
			l.draw()
		})
	}
}

// draw makes a picture: what scrolls, and the rows below it.
func (l *Live) draw() {
	if l.held || l.closed {
		return
	}
	columns, rows := l.size()
	var b strings.Builder
	b.WriteString(together + l.back(columns))
	b.WriteString(l.above.String())
	l.above.Reset()
	l.widths = l.widths[:0]
	add := func(text string, width int) {
		if len(l.widths) > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(text)
		l.widths = append(l.widths, width)
	}
	if l.line != "" {
		if broken := Wrap(l.line, columns); len(broken) > 1 { // the terminal is narrower than it was
			b.WriteString(strings.Join(broken[:len(broken)-1], "\r\n") + "\r\n")
			l.line = broken[len(broken)-1]
		}
		add(l.line, Width(l.line))
	}
	for _, r := range l.tree.Rows(columns-1, max(rows/2, 1), l.now()) {
		add(r.Render(l.coloured), r.Width())
	}
	b.WriteString(shown)
	l.last, l.width = l.now(), columns
	_, _ = io.WriteString(l.out, b.String()) // who does not look any more misses nothing that is not in the log
}

// erase takes the rows below off the terminal, and writes what scrolls.
func (l *Live) erase() {
	columns, _ := l.size()
	text := l.back(columns) + l.above.String()
	l.above.Reset()
	l.widths = l.widths[:0]
	_, _ = io.WriteString(l.out, text)
}

// back is the way to the beginning of the rows below, and takes them off. Rows that a terminal of now fewer columns has
// broken are several.
func (l *Live) back(columns int) string {
	up := -1
	for _, w := range l.widths {
		up += max(1, (w+columns-1)/columns)
	}
	switch {
	case up < 0:
		return ""
	case up == 0:
		return "\r\x1b[J"
	}
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", up)
}
