package read

import "encoding/json"

// MarshalJSON writes url, contentType, size, lines, firstLine, lastLine, then
// text, or data in base64 for binary content, and notes.
func (p Page) MarshalJSON() ([]byte, error) {
	head := struct {
		URL         string   `json:"url"`
		ContentType string   `json:"contentType"`
		Size        int64    `json:"size"`
		Lines       int64    `json:"lines"`
		FirstLine   int64    `json:"firstLine"`
		LastLine    int64    `json:"lastLine"`
		Text        *string  `json:"text,omitempty"`
		Data        *[]byte  `json:"data,omitempty"`
		Notes       []string `json:"notes"`
	}{p.URL, p.ContentType, p.Size, p.Lines, p.FirstLine, p.LastLine, nil, nil, p.Notes}
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
