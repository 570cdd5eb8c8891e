// Package notebook makes text of Jupyter notebooks (.ipynb, nbformat 3 and 4): cell after cell, each
// with a line that tells what it is, and its outputs behind it. Pictures among the outputs stand at the
// line that names them.
//
// Of an output that comes in several forms the picture is taken and the plainest text. A
// notebook is hostile: [Render] is bounded by [MaxFile] and by what the file holds, and takes
// any JSON.
package notebook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxFile is the largest notebook, in bytes.
const MaxFile = 64 << 20

// ErrNotebook is returned for what is no notebook.
var ErrNotebook = errors.New("it is no Jupyter notebook")

// Picture is one of the outputs.
type Picture struct {
	Line     int64 // that names it, from 1
	MIMEType string
	Data     []byte
}

// Notebook is a notebook as text.
type Notebook struct {
	Text     []byte
	Cells    int
	Language string // "" is not said
	Pictures []Picture
}

// text is a string, or the lines of one.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	var lines []string
	if json.Unmarshal(b, &lines) == nil {
		*t = text(strings.Join(lines, ""))
		return nil
	}
	var one string
	if json.Unmarshal(b, &one) == nil {
		*t = text(one)
	}
	return nil // anything else is not shown
}

type cell struct {
	Type    string   `json:"cell_type"`
	Source  text     `json:"source"`
	Input   text     `json:"input"` // of nbformat 3
	Level   int      `json:"level"`
	Count   *int64   `json:"execution_count"`
	Prompt  *int64   `json:"prompt_number"` // of nbformat 3
	Outputs []output `json:"outputs"`
}

type output struct {
	Type      string                     `json:"output_type"`
	Name      string                     `json:"name"`
	Stream    string                     `json:"stream"` // of nbformat 3
	Text      text                       `json:"text"`
	Data      map[string]json.RawMessage `json:"data"`
	Ename     string                     `json:"ename"`
	Evalue    string                     `json:"evalue"`
	Traceback []string                   `json:"traceback"`
	// Of nbformat 3, beside each other.
	PNG  text `json:"png"`
	JPEG text `json:"jpeg"`
	HTML text `json:"html"`
}

type file struct {
	Format     int    `json:"nbformat"`
	Cells      []cell `json:"cells"`
	Worksheets []struct {
		Cells []cell `json:"cells"`
	} `json:"worksheets"` // of nbformat 3
	Metadata struct {
		Kernel struct {
			Language string `json:"language"`
			Name     string `json:"name"`
		} `json:"kernelspec"`
		Language struct {
			Name string `json:"name"`
		} `json:"language_info"`
	} `json:"metadata"`
}

// Render makes text of a notebook. The error matches ErrNotebook for what is none.
func Render(data []byte) (Notebook, error) {
	if len(data) > MaxFile {
		return Notebook{}, fmt.Errorf("it has more than the 64 MiB that are shown as a notebook: %w", ErrNotebook)
	}
	var f file
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), &f); err != nil && !errors.As(err, &wrong) {
		return Notebook{}, fmt.Errorf("%w: %w", ErrNotebook, err)
	}
	if f.Format < 3 {
		return Notebook{}, ErrNotebook
	}
	for _, w := range f.Worksheets {
		f.Cells = append(f.Cells, w.Cells...)
	}
	n := &writer{}
	n.Cells = len(f.Cells)
	n.Language = f.Metadata.Language.Name
	if n.Language == "" {
		n.Language = f.Metadata.Kernel.Language
	}
	for i, c := range f.Cells {
		n.cell(i+1, c)
	}
	n.Text = n.out.Bytes()
	return n.Notebook, nil
}

// writer puts the text together.
type writer struct {
	Notebook
	out   bytes.Buffer
	lines int64
}

// put writes a text, and ends its last line.
func (w *writer) put(s string) {
	if s == "" {
		return
	}
	w.out.WriteString(s)
	w.lines += int64(strings.Count(s, "\n"))
	if !strings.HasSuffix(s, "\n") {
		w.out.WriteByte('\n')
		w.lines++
	}
}

func (w *writer) head(format string, args ...any) {
	w.put("--- " + strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ") + " ---")
}

func (w *writer) cell(number int, c cell) {
	if number > 1 {
		w.put("\n")
	}
	count := c.Count
	if count == nil {
		count = c.Prompt
	}
	switch {
	case c.Type == "code" && count != nil:
		w.head("cell %d: code, run as [%d]", number, *count)
	case c.Type == "code":
		w.head("cell %d: code, not run", number)
	default:
		w.head("cell %d: %.40s", number, c.Type)
	}
	if c.Type == "heading" && c.Level > 0 && c.Level <= 6 {
		w.out.WriteString(strings.Repeat("#", c.Level) + " ")
	}
	w.put(string(c.Source + c.Input))
	for _, o := range c.Outputs {
		w.output(number, o)
	}
}

func (w *writer) output(number int, o output) {
	switch o.Type {
	case "stream":
		w.head("cell %d: output, %.40s", number, o.Name+o.Stream)
		w.put(string(o.Text))
	case "error", "pyerr":
		w.head("cell %d: error, %.200s", number, o.Ename)
		if len(o.Traceback) == 0 {
			o.Traceback = []string{o.Ename + ": " + o.Evalue}
		}
		w.put(strings.Join(o.Traceback, "\n"))
	default:
		w.display(number, o)
	}
}

// pictures are the types that models are shown.
var pictures = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// plainest are the texts, the first there is being the one that is shown.
var plainest = []string{"text/markdown", "text/plain", "text/latex", "application/json", "text/html"}

func (w *writer) display(number int, o output) {
	forms := map[string]text{}
	for typ, raw := range o.Data {
		var t text
		if err := t.UnmarshalJSON(raw); err == nil && t == "" && typ == "application/json" {
			t = text(raw)
		}
		forms[typ] = t
	}
	for typ, t := range map[string]text{"text/plain": o.Text, "image/png": o.PNG, "image/jpeg": o.JPEG, "text/html": o.HTML} {
		if t != "" {
			forms[typ] = t
		}
	}
	shown := false
	for _, typ := range pictures {
		if encoded, ok := forms[typ]; ok {
			shown = w.picture(number, typ, string(encoded)) || shown
		}
	}
	for _, typ := range plainest {
		if t := forms[typ]; t != "" {
			w.head("cell %d: output, %s", number, typ)
			w.put(string(t))
			return
		}
	}
	if shown {
		return
	}
	var types []string
	for typ := range forms {
		types = append(types, fmt.Sprintf("%.80s", typ))
	}
	slices.Sort(types)
	w.head("cell %d: output, %s, which is not shown", number, strings.Join(types[:min(len(types), 8)], ", "))
}

func (w *writer) picture(number int, typ, encoded string) bool {
	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(encoded), ""))
	if err != nil || len(data) == 0 {
		w.head("cell %d: output, %s, which is damaged", number, typ)
		return true
	}
	w.head("cell %d: output, %s of %d bytes", number, typ, len(data))
	w.Pictures = append(w.Pictures, Picture{w.lines, typ, data})
	return true
}
