package read

import (
	"context"
	"errors"
	"fmt"

	"github.com/agentrun/agentrun/internal/notebook"
)

// maxPictures is how many pictures a page has.
const maxPictures = 8

// notebook makes text of a notebook; done is not set for what is none.
func (s *selection) notebook(ctx context.Context, opt Options) (done bool, err error) {
	data, err := load(ctx, s.res, notebook.MaxFile)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		return false, nil // it is shown as the text that it is
	}
	n, err := notebook.Render(data)
	if errors.Is(err, notebook.ErrNotebook) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", s.res.URL, err)
	}
	s.outputs = n.Pictures
	about := fmt.Sprintf("Notebook of %d cells", n.Cells)
	if n.Cells == 1 {
		about = "Notebook of 1 cell"
	}
	if n.Language != "" {
		about += fmt.Sprintf(" in %.40s", n.Language)
	}
	s.res.Notes = append(s.res.Notes, about+"; "+s.res.URL+":raw is the file")
	s.rendered = true
	s.res.Kind = "notebook"
	s.res.Content = newText(n.Text, s.res.Content)
	return true, nil
}

// lastWithPictures is the last line of a page that begins at a line, by its pictures.
func (s *selection) lastWithPictures(first, last int64) int64 {
	n := 0
	for _, p := range s.outputs {
		if p.Line < first {
			continue
		}
		if n++; n > maxPictures {
			return min(last, p.Line-1)
		}
	}
	return last
}

// shownOutputs adds the pictures at lines that were shown.
func (s *selection) shownOutputs(ctx context.Context, opt Options, first, last int64, p *Page) {
	for _, o := range s.outputs {
		if o.Line < first || o.Line > last {
			continue
		}
		image, about, err := show(ctx, opt, o.Data, o.MIMEType)
		if err != nil {
			p.note("The picture at line %d cannot be shown: %v", o.Line, err)
			continue
		}
		p.note("Picture at line %d: %s", o.Line, about)
		p.Images = append(p.Images, image)
	}
}
