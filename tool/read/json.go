package read

import "encoding/json"

// MarshalJSON writes url, contentType, size, lines, firstLine, lastLine, then
// text, or data in base64 for binary content, notes, and where there are any images (mimeType, data,
// original), encoding and pages (first, last, of).
func (p Page) MarshalJSON() ([]byte, error) {
	head := struct {
		URL         string      `json:"url"`
		ContentType string      `json:"contentType"`
		Size        int64       `json:"size"`
		Lines       int64       `json:"lines"`
		FirstLine   int64       `json:"firstLine"`
		LastLine    int64       `json:"lastLine"`
		Text        *string     `json:"text,omitempty"`
		Data        *[]byte     `json:"data,omitempty"`
		Notes       []string    `json:"notes"`
		Images      []jsonImage `json:"images,omitempty"`
		Encoding    string      `json:"encoding,omitempty"`
		Pages       *Pages      `json:"pages,omitempty"`
	}{p.URL, p.ContentType, p.Size, p.Lines, p.FirstLine, p.LastLine, nil, nil, p.Notes, nil, p.Encoding, nil}
	for _, i := range p.Images {
		head.Images = append(head.Images, jsonImage{i.MIMEType, i.Data, i.Original})
	}
	if p.Pages != (Pages{}) {
		head.Pages = &p.Pages
	}
	if p.Data != nil {
		head.Data = &p.Data
	} else {
		head.Text = &p.Text
	}
	if head.Notes == nil {
		head.Notes = []string{}
	}
	return json.Marshal(head)
}

type jsonImage struct {
	MIMEType string `json:"mimeType"`
	Data     []byte `json:"data"`
	Original string `json:"original,omitempty"`
}
