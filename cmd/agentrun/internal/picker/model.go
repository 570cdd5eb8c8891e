package picker

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Item is a session in the list. Its strings may hold anything: they are cleaned
// when they are drawn.
type Item struct {
	ID       string
	Path     string // what tells one item from another
	Title    string
	Words    string // the first prompt or command; it stands in for a title
	Fork     bool   // it was forked from another session
	CWD      string
	Modified time.Time
	Size     int64 // bytes
	Here     bool  // it is one of the working directory
}

// name is what the list shows of an item.
func (i Item) name() string {
	name := cmp.Or(clean(i.Title), clean(i.Words), clean(i.ID))
	if i.Fork {
		name += " (fork)"
	}
	return name
}

// matches reports whether each word of the filter is in what is known of the item.
func (i Item) matches(words []string) bool {
	text := strings.ToLower(strings.Join([]string{i.Title, i.Words, i.ID, i.CWD}, "\n"))
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// Message is one message of a preview.
type Message struct{ Role, Text string }

// Verb is what a key asks for that the model cannot do by itself.
type Verb int

// The verbs of an [Effect].
const (
	Nothing Verb = iota
	Quit
	Interrupt // ctrl-c
	Choose
	Rename
	Trash
	Fork
	Compress
	Export
	Tree
)

// Effect is a verb with what it is about.
type Effect struct {
	Verb  Verb
	Item  Item
	Title string // of Rename
	File  string // of Export
}

type mode int

const (
	browsing mode = iota
	filtering
	renaming
	exporting
	confirming // the trash
	helping
)

// Model is the state of the list. It does no I/O: keys and what was loaded go in,
// effects and lines come out.
type Model struct {
	Home  string    // the user's directory, written ~
	Now   time.Time // what ages are counted from
	Plain bool      // no colours

	items         []Item
	loaded        bool // the first listing is there
	all           bool // sessions of every directory are shown
	filter        string
	mode          mode
	input         string          // the title, or the name of a file, that is being written
	message       string          // stands in the last lines until the next key
	busy          bool            // an effect is being carried out
	cursor        string          // path of the item under it
	next          string          // goes there with the next list that has it
	top           int             // first item on the screen
	shown         []Item          // those that pass the filter
	found         map[string]bool // by path: sessions in whose text the words foundBy are
	foundBy       string
	preview       map[string][]Message
	width, height int
}

// Resize says how large the screen is.
func (m *Model) Resize(width, height int) { m.width, m.height = width, height }

// Widen shows the sessions of every directory.
func (m *Model) Widen() {
	m.all = true
	m.refresh()
}

// SetItems replaces the list: newest first, those of the working directory marked.
func (m *Model) SetItems(items []Item) {
	words := map[string]string{}
	for _, i := range m.items {
		words[i.Path] = i.Words
	}
	m.items, m.loaded = slices.Clone(items), true
	for n := range m.items {
		if m.items[n].Words == "" {
			m.items[n].Words = words[m.items[n].Path]
		}
	}
	slices.SortStableFunc(m.items, func(a, b Item) int {
		switch {
		case a.Here == b.Here:
			return 0
		case a.Here:
			return -1
		}
		return 1
	})
	if m.next != "" && slices.ContainsFunc(m.items, func(i Item) bool { return i.Path == m.next }) {
		m.cursor, m.next = m.next, ""
	}
	m.preview = nil // what is listed anew may have been written to
	m.refresh()
}

// SetWords gives the first words of sessions, by path.
func (m *Model) SetWords(words map[string]string) {
	for n, i := range m.items {
		if w, ok := words[i.Path]; ok {
			m.items[n].Words = w
		}
	}
	m.refresh()
}

// SetPreview gives the last messages of the session at path.
func (m *Model) SetPreview(path string, messages []Message) {
	if m.preview == nil {
		m.preview = map[string][]Message{}
	}
	m.preview[path] = messages
}

// Wanted is the path of the session whose preview is to be shown and is not there.
func (m *Model) Wanted() (path string, ok bool) {
	item, ok := m.Selected()
	if !ok {
		return "", false
	}
	_, known := m.preview[item.Path]
	return item.Path, !known
}

// Say shows a sentence until the next key.
func (m *Model) Say(message string) { m.message = message }

// SetBusy says whether an effect is being carried out; others wait for it.
func (m *Model) SetBusy(busy bool) { m.busy = busy }

// Filter is what the list is filtered by.
func (m *Model) Filter() string { return m.filter }

// SetFound gives the sessions, by path, in whose text the words of a filter are.
func (m *Model) SetFound(filter string, paths map[string]bool) {
	m.foundBy, m.found = filter, paths
	m.refresh()
}

// SelectNext puts the cursor on the session at path when the list is set next and has
// it. Until then it stays where it is.
func (m *Model) SelectNext(path string) { m.next = path }

// Select puts the cursor on the session at path.
func (m *Model) Select(path string) {
	m.cursor = path
	m.refresh()
}

// Selected is the item under the cursor.
func (m *Model) Selected() (Item, bool) {
	if n := m.at(); n >= 0 {
		return m.shown[n], true
	}
	return Item{}, false
}

// at is the place of the cursor in shown, -1 when nothing is shown.
func (m *Model) at() int {
	return slices.IndexFunc(m.shown, func(i Item) bool { return i.Path == m.cursor })
}

// refresh applies scope and filter, and keeps the cursor where it was: on its item,
// else at its place.
func (m *Model) refresh() {
	place := max(m.at(), 0)
	words := strings.Fields(strings.ToLower(m.filter))
	m.shown = m.shown[:0:0]
	for _, i := range m.items {
		if (i.Here || m.all) && (i.matches(words) || m.foundBy == m.filter && m.found[i.Path]) {
			m.shown = append(m.shown, i)
		}
	}
	if len(m.shown) > 0 && m.at() < 0 {
		m.cursor = m.shown[min(place, len(m.shown)-1)].Path
	}
}

func (m *Model) move(by int) {
	if len(m.shown) > 0 {
		m.cursor = m.shown[min(max(m.at()+by, 0), len(m.shown)-1)].Path
	}
}

// Press is a key.
func (m *Model) Press(k Key) Effect {
	m.message = ""
	if k == CtrlC {
		return Effect{Verb: Interrupt}
	}
	switch m.mode {
	case filtering:
		return m.pressFiltering(k)
	case renaming:
		return m.pressRenaming(k)
	case exporting:
		return m.pressExporting(k)
	case confirming:
		m.mode = browsing
		if k == "y" || k == "Y" {
			return m.effect(Trash)
		}
		m.message = "not removed"
		return Effect{}
	case helping:
		m.mode = browsing
		return Effect{}
	}
	if m.travel(k) {
		return Effect{}
	}
	switch k {
	case "q":
		return Effect{Verb: Quit}
	case Esc:
		if m.filter == "" {
			return Effect{Verb: Quit}
		}
		m.filter = ""
		m.refresh()
	case "k":
		m.move(-1)
	case "j":
		m.move(1)
	case "/":
		m.mode = filtering
	case "a", Tab:
		m.all = !m.all
		m.refresh()
	case "?":
		m.mode = helping
	case Enter:
		return m.effect(Choose)
	case "f":
		return m.effect(Fork)
	case "c":
		return m.effect(Compress)
	case "t":
		return m.effect(Tree)
	case "e":
		if item, ok := m.Selected(); ok {
			m.mode, m.input = exporting, clean(item.ID)+".agentrun"
		}
	case "r":
		if item, ok := m.Selected(); ok {
			m.mode, m.input = renaming, clean(item.Title)
		}
	case "d":
		if _, ok := m.Selected(); ok {
			m.mode = confirming
		}
	}
	return Effect{}
}

// effect is a verb about the item under the cursor, if there is one and nothing else
// is being done.
func (m *Model) effect(v Verb) Effect {
	item, ok := m.Selected()
	switch {
	case !ok:
		return Effect{}
	case m.busy:
		m.message = "wait for what is being done"
		return Effect{}
	}
	return Effect{Verb: v, Item: item}
}

// travel moves the cursor, and reports whether the key was for that.
func (m *Model) travel(k Key) bool {
	page := max(m.layout().list-1, 1)
	switch k {
	case Up:
		m.move(-1)
	case Down:
		m.move(1)
	case PageUp:
		m.move(-page)
	case PageDown:
		m.move(page)
	case Home:
		m.move(-len(m.shown))
	case End:
		m.move(len(m.shown))
	default:
		return false
	}
	return true
}

func (m *Model) pressFiltering(k Key) Effect {
	if m.travel(k) {
		return Effect{}
	}
	switch k {
	case Enter:
		m.mode = browsing
	case Esc:
		m.mode, m.filter = browsing, ""
	default:
		m.filter = edit(m.filter, k)
	}
	m.refresh()
	return Effect{}
}

func (m *Model) pressRenaming(k Key) Effect {
	switch k {
	case Esc:
		m.mode = browsing
		m.message = "not renamed"
	case Enter:
		m.mode = browsing
		title := clean(m.input)
		if title == "" {
			m.message = "not renamed: a title has at least one character"
			return Effect{}
		}
		e := m.effect(Rename)
		e.Title = title
		return e
	default:
		m.input = edit(m.input, k)
	}
	return Effect{}
}

func (m *Model) pressExporting(k Key) Effect {
	switch k {
	case Esc:
		m.mode = browsing
		m.message = "not exported"
	case Enter:
		m.mode = browsing
		if m.input == "" {
			m.message = "not exported: a file has a name"
			return Effect{}
		}
		e := m.effect(Export)
		e.File = m.input
		return e
	default:
		m.input = edit(m.input, k)
	}
	return Effect{}
}

// edit is a line of input after a key.
func edit(line string, k Key) string {
	switch {
	case k == CtrlU:
		return ""
	case k == Backspace:
		last := 0
		for g := cells.StringGraphemes(line); g.Next(); {
			last = len(g.Value())
		}
		return line[:len(line)-last]
	case k.text():
		return line + string(k)
	}
	return line
}
