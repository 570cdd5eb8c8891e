package python

import (
	"encoding/json"
	"errors"
)

// end is how a cell ended, as the kernel tells.
type end struct {
	Event       string  `json:"event"`
	Cell        int     `json:"cell"`
	Code        int     `json:"code"`
	Result      *string `json:"result"`
	Interrupted bool    `json:"interrupted"`
	User        int64   `json:"user"` // microseconds
	System      int64   `json:"system"`
}

// event is what else the kernel tells.
type event struct {
	Event      string `json:"event"`
	Cell       int    `json:"cell"`
	MIME       string `json:"mime"`
	Base64     []byte `json:"base64"`
	Text       string `json:"text"`
	Executable string `json:"executable"`
}

// listen reads what the kernel tells.
func (i *instance) listen() {
	defer close(i.heard)
	for {
		b, err := i.control.receive()
		var e event
		if err == nil {
			if err = json.Unmarshal(b, &e); err != nil {
				err = errForeign
			}
		}
		if errors.Is(err, errForeign) {
			close(i.foreign)
		}
		if err != nil {
			return
		}
		switch e.Event {
		case "ready":
			select {
			case i.ready <- e.Executable:
			default:
			}
		case "begin":
			i.begin(e.Cell)
		case "display":
			i.display(&e)
		case "end":
			i.end(b)
		}
	}
}

// begin notes that the code of a cell runs.
func (i *instance) begin(cell int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.call == nil || cell != i.call.number {
		return
	}
	select {
	case <-i.call.begun:
	default:
		close(i.call.begun)
	}
}

// end passes on the end of the cell that runs.
func (i *instance) end(b []byte) {
	var e end
	i.mu.Lock()
	call := i.call
	i.mu.Unlock()
	if json.Unmarshal(b, &e) != nil || call == nil || e.Cell != call.number {
		return
	}
	select {
	case i.ends <- e:
	default: // it ended before
	}
}

// display keeps what the cell shows.
func (i *instance) display(e *event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	d := Display{MIMEType: e.MIME, Data: e.Base64}
	if !d.Image() {
		d.Data = []byte(e.Text)
	}
	if i.call == nil || e.Cell != i.call.number {
		return
	}
	if i.shown+len(d.Data) > MaxDisplays {
		i.excess++
		return
	}
	i.shown += len(d.Data)
	i.displays = append(i.displays, d)
}
