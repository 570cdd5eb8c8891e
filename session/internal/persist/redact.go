package persist

import (
	"fmt"

	"github.com/agentrun/agentrun/internal/ecmajson"
)

// Redact gives every text of an entry to replace, which returns how many secrets it replaced in it and what the text is
// then, and returns the entry with what came back: the entry itself if nothing was replaced. Rule 4 holds here too: what is
// signed or encrypted is not looked at, and neither are the data of images, the names of members and words of the format. It comes
// before Prepare.
func Redact(entry []byte, replace func(text []byte) ([]byte, int)) ([]byte, error) {
	s := survey{limits: standard, task: texts}
	if err := s.run(entry, nil); err != nil {
		return nil, fmt.Errorf("looking for secrets in an entry: %w", err)
	}
	var edits []edit
	for _, at := range s.sites {
		text, err := ecmajson.Unquote(at.of(entry))
		if err != nil {
			return nil, fmt.Errorf("looking for secrets in an entry: %w", err)
		}
		if left, n := replace(text); n > 0 {
			edits = append(edits, edit{at.span, ecmajson.QuoteWTF8(nil, left)})
		}
	}
	if edits == nil {
		return entry, nil
	}
	return splice(entry, edits), nil
}
