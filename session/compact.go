package session

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/agentrun/agentrun/session/entry"
)

// CompactOptions say what a compaction keeps and what it says of the rest.
type CompactOptions struct {
	// Summary is what a model reads instead of what is not kept. It must not be empty.
	Summary string
	// ShortSummary is a line for people, "" for none.
	ShortSummary string
	// FirstKept is the id of the first entry that stays in the context behind the
	// summary: a message of the context, and no tool result, whose call would be cut
	// off. "" keeps nothing.
	FirstKept string
	// TokensBefore is how many tokens the context had, as far as the caller knows.
	TokensBefore int64
	// TokensAfter is how many it has now; nil is unknown.
	TokensAfter *int64
	// Method is one of the words of oh-my-pi, such as "soft" or "handoff"; "" is an
	// ordinary summary.
	Method string
	// Details are for programs, nil for none.
	Details json.RawMessage
}

// Compact appends a compaction under the leaf: from then on a context begins with
// its summary, then what it keeps, then what follows it. The log keeps everything;
// Branch leads back to before it. It returns the id of the entry.
//
// The entry is what pi and oh-my-pi read, and repeats settings and title of its
// time, so that opening can stop there. Errors are those of Append, and ErrNoEntry
// for a FirstKept that is not in the context.
func (s *Session) Compact(ctx context.Context, o CompactOptions) (id string, err error) {
	if strings.TrimSpace(o.Summary) == "" {
		return "", fmt.Errorf("compacting %s: the summary is empty; a model would know nothing of what came before", s.Path())
	}
	now, err := s.Context(ctx)
	if err != nil {
		return "", err
	}
	if o.FirstKept != "" {
		i := slices.IndexFunc(now.Messages, func(m entry.ContextMessage) bool { return m.EntryID == o.FirstKept })
		switch {
		case i < 0:
			return "", fmt.Errorf("compacting %s: first kept entry %.40q is not in the context: %w", s.Path(), o.FirstKept, ErrNoEntry)
		case now.Messages[i].Role == entry.RoleToolResult:
			return "", fmt.Errorf("compacting %s: first kept entry %.40q is the result of a call that would not be kept; name the turn of the call", s.Path(), o.FirstKept)
		case now.Messages[i].Role == entry.RoleCompactionSummary:
			return "", fmt.Errorf("compacting %s: first kept entry %.40q is a compaction, which the new one replaces; name an entry behind it", s.Path(), o.FirstKept)
		}
	}
	return s.Append(ctx, entry.Compaction{
		Summary: o.Summary, ShortSummary: o.ShortSummary, FirstKeptEntryID: o.FirstKept,
		TokensBefore: o.TokensBefore, TokensAfter: o.TokensAfter, Method: o.Method, Details: o.Details,
	})
}
