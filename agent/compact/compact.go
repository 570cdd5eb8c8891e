// Package compact makes the context of a session shorter, before it is too long for its model: it is what
// agent.Options.Compact calls.
//
//	o := agent.Options{Session: s, Model: m}
//	compact.Equip(&o, compact.Options{})
//	a, err := agent.New(o)
//
// # What it does
//
// First it prunes: of old tool output one line stays, which says where the text is (entry.PruneType). If that is not
// enough, the model writes a summary of all but the newest messages (session.Session.Compact), behind which stands a list
// of the artifacts and agent outputs that were cited there. The log keeps everything, and Branch leads back to before it.
//
// A cut never stands between a call and its result. What a summary is made of is read from the log, so a process
// that dies before the entry is in the log loses a summary and nothing else: whoever resumes asks for it anew.
//
// # What it asks
//
// A summary is asked for in the name of the agent with "/compact" behind it ("main/compact"), its turn being the number of
// summaries that stand behind compactions of the log. A script is played by that. Each request is in the log as an
// entry.ModelUsage of agent.CompactPurpose.
package compact

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/agentrun/agentrun/agent"
	"github.com/agentrun/agentrun/model"
	"github.com/agentrun/agentrun/session"
	"github.com/agentrun/agentrun/session/entry"
)

// Options say what is made shorter, and when.
type Options struct {
	Session *session.Session
	Model   model.Model // that writes summaries, and whose window counts
	Agent   string      // its id; "" is agent.MainID

	// Threshold is from how many tokens on the context is made shorter; 0 is that of the model, see Threshold.
	Threshold int64
	// Before is called before the context of so many tokens is made shorter; nil is for nobody.
	Before func(ctx context.Context, tokens int64)
	// State is put behind a summary: what the agent is to know besides, such as its mode; nil, or "", is nothing.
	State func() string
	// Wait is the time before a request that failed is made again, which doubles; 0 is a second.
	Wait time.Duration
	// Silence is how long a summary may yield nothing before it counts as failed; 0 is five minutes.
	Silence time.Duration
}

// Equip has the context of an agent made shorter; the options name the agent, its session and its model.
func Equip(o *agent.Options, with Options) {
	with.Session, with.Model, with.Agent = o.Session, o.Model, o.ID
	c := New(with)
	o.Compact, o.CompactAt, o.Count = c.Compact, c.At(), Count
}

// Threshold is from how many tokens on the context of a model is made shorter: nine tenths of its window, less the room for
// an answer, which is a quarter of the window at most. Of a model whose window is not known it is math.MaxInt64.
func Threshold(info model.Info) int64 {
	w := info.ContextWindow
	if w <= 0 {
		return math.MaxInt64
	}
	room := info.MaxOutput
	if room <= 0 || room > w/4 {
		room = w / 4
	}
	return max(w-w/10-room, 1)
}

// Compactor makes the context of one agent shorter. It is not safe for concurrent use.
type Compactor struct {
	Options
	pause int64 // no summary below so many tokens: the last one failed
}

// New returns a Compactor. It touches nothing.
func New(o Options) *Compactor {
	if o.Agent == "" {
		o.Agent = agent.MainID
	}
	if o.Threshold <= 0 {
		o.Threshold = Threshold(o.Model.Info())
	}
	if o.Wait <= 0 {
		o.Wait = time.Second
	}
	if o.Silence <= 0 {
		o.Silence = agent.DefaultRetries.Silence
	}
	return &Compactor{Options: o}
}

// At is from how many tokens on Compact does something.
func (c *Compactor) At() int64 { return c.Threshold }

// room is what there is for a context: the threshold, or, where none is known, what did not fit.
func (c *Compactor) room(tokens int64) int64 {
	if c.Threshold == math.MaxInt64 {
		return tokens / 2
	}
	return c.Threshold
}

// Compact makes the context shorter if it has tokens of the threshold or more, or if a provider said that it is too long. It
// reports whether it did: not if there is nothing that could go, or if the summary failed and the context still fits.
// An overflow that cannot be mended is an agent.ErrTooLong or the *model.Error of the summary.
func (c *Compactor) Compact(ctx context.Context, tokens int64, overflow bool) (bool, error) {
	if !overflow && tokens < c.Threshold {
		return false, nil
	}
	if w := c.Model.Info().ContextWindow; overflow && tokens < w {
		tokens = w // the estimate was too low
	}
	room := c.room(tokens)
	r, err := c.Session.Resume(ctx, session.ResumeOptions{Restore: true})
	if err != nil {
		return false, fmt.Errorf("reading the context: %w", err)
	}
	done, err := c.prune(ctx, r.Context, tokens, room)
	if done || err != nil {
		return done, err
	}
	if w := c.Model.Info().ContextWindow; !overflow && tokens < c.pause && tokens < w {
		return false, nil
	}
	at, ok, err := c.cut(r.Context, tokens, room, overflow)
	if err != nil || !ok {
		return false, err
	}
	return c.replace(ctx, r.Context, at, tokens, overflow)
}

// prune replaces old tool output by its URL, if that is enough for a while.
func (c *Compactor) prune(ctx context.Context, now *entry.Context, tokens, room int64) (bool, error) {
	keep := max(room/4*bytesPerToken, unseen(now))
	r, err := c.Session.Resume(ctx, session.ResumeOptions{Restore: true, KeepToolOutput: keep})
	if err != nil {
		return false, fmt.Errorf("reading the context: %w", err)
	}
	already := map[int64]bool{}
	for _, m := range now.Messages {
		already[m.Entry().Offset()] = m.Pruned != ""
	}
	var saved int64
	for _, m := range r.Context.Messages {
		if m.Pruned == "" || already[m.Entry().Offset()] {
			continue
		}
		before, err := wholeTokens(m)
		if err != nil {
			return false, err
		}
		message, err := m.Message()
		if err != nil {
			return false, err
		}
		saved += before - tokensOf(message)
	}
	if saved <= 0 || tokens-saved > room/4*3 {
		return false, nil
	}
	c.before(ctx, tokens)
	data, err := json.Marshal(entry.Prune{KeepToolOutput: keep, SessionID: c.Session.ID()})
	if err != nil {
		return false, err
	}
	if _, err := c.Session.Append(ctx, entry.Custom{CustomType: entry.PruneType, Data: data}); err != nil {
		return false, fmt.Errorf("recording that old tool output is pruned: %w", err)
	}
	return true, nil
}

func (c *Compactor) before(ctx context.Context, tokens int64) {
	if c.Before != nil {
		c.Before(ctx, tokens)
	}
}

// unseen is the length, at the most, of the tool output that the model has not answered yet, which it is to see once.
func unseen(x *entry.Context) int64 {
	n := int64(1)
	for _, m := range slices.Backward(x.Messages) {
		if m.Role == entry.RoleAssistant {
			break
		}
		n += int64(len(m.Entry().Raw()))
	}
	return n
}

// bytesPerToken is what tool output has on average.
const bytesPerToken = 3

// cut is the place of the first message of a context that stays, len(Messages) if none does. ok is false when there is nothing
// to cut off.
func (c *Compactor) cut(x *entry.Context, tokens, room int64, overflow bool) (at int, ok bool, err error) {
	begin := 0
	if len(x.Messages) > 0 && x.Messages[0].Role == entry.RoleCompactionSummary {
		begin = 1
	}
	at = len(x.Messages)
	var kept, atKept int64 // tokens from i on, and from at on
	cuttable, newest := cuts(x), true
	for i := len(x.Messages) - 1; i > begin; i-- {
		n, err := wholeTokens(x.Messages[i]) // a compaction ends what is pruned
		if err != nil {
			return 0, false, err
		}
		kept += n
		if !cuttable[i] {
			continue
		}
		// The newest turn stays even if it is long, as long as that leaves room.
		if kept <= room/4 || newest && kept <= room/4*3 && !overflow {
			at, atKept = i, kept
		}
		newest = false
	}
	if overflow {
		if at-begin > 1 || at-begin == 1 && at < len(x.Messages) {
			return at, true, nil
		}
		return 0, false, fmt.Errorf("%w: it is a single message", agent.ErrTooLong)
	}
	if w := c.Model.Info().ContextWindow; at == len(x.Messages) && tokens < w-w/10 {
		return at, false, nil // the model is to see the newest turn once, if that fits
	}
	var gone int64
	for _, m := range x.Messages[begin:at] {
		n, err := wholeTokens(m)
		if err != nil {
			return 0, false, err
		}
		gone += n
	}
	// A summary of little is no shorter, and what is kept would be too long again at once.
	worth := at-begin > 1 && gone >= room/8 && atKept < room && (begin == 0 || c.grown(x))
	return at, worth, nil
}

// grown reports whether a model has answered since the last compaction: until then a new one would be of no more use.
func (c *Compactor) grown(x *entry.Context) bool {
	before := x.Messages[0].Entry().Offset()
	for _, m := range x.Messages {
		if m.Role == entry.RoleAssistant && m.Entry().Offset() > before {
			return true
		}
	}
	return false
}

// cuts says for each message whether the context may begin with it: everything before it in the conversation stands before it
// in the log too, and it is no result.
func cuts(x *entry.Context) []bool {
	ok := make([]bool, len(x.Messages))
	newest := int64(-1) // of what stands before, without a compaction, which stands behind what it keeps
	for i, m := range x.Messages {
		at := m.Entry().Offset()
		ok[i] = m.Role != entry.RoleToolResult && m.Role != entry.RoleCompactionSummary && !m.Synthetic && at > newest
		if m.Role != entry.RoleCompactionSummary {
			newest = max(newest, at)
		}
	}
	oldest := int64(math.MaxInt64)
	for i := len(ok) - 1; i >= 0; i-- {
		oldest = min(oldest, x.Messages[i].Entry().Offset())
		ok[i] = ok[i] && x.Messages[i].Entry().Offset() <= oldest
	}
	return ok
}

// replace has a summary written of the messages before at, and puts it in their place.
func (c *Compactor) replace(ctx context.Context, x *entry.Context, at int, tokens int64, overflow bool) (bool, error) {
	played, err := c.played(ctx)
	if err != nil {
		return false, err
	}
	c.before(ctx, tokens)
	summary, requests, err := c.summarize(ctx, x.Messages[:at], played)
	if err != nil {
		if w := c.Model.Info().ContextWindow; !overflow && model.KindOf(err) != model.KindCancelled && w > 0 && tokens < w {
			c.pause = tokens + w/20
			return false, nil // the log says why; the request itself may do better
		}
		return false, err
	}
	beforeEntry()
	first, after := "", Count(summary)
	for i, m := range x.Messages[at:] {
		if i == 0 {
			first = m.EntryID
		}
		n, err := wholeTokens(m)
		if err != nil {
			return false, err
		}
		after += n
	}
	details, err := json.Marshal(Details{Agent: c.Agent, Summaries: requests, Cited: cited(x.Messages[:at])})
	if err != nil {
		return false, err
	}
	if _, err := c.Session.Compact(ctx, session.CompactOptions{
		Summary: summary, FirstKept: first, TokensBefore: tokens, TokensAfter: &after, Details: details,
	}); err != nil {
		return false, err
	}
	c.pause = 0
	return true, nil
}

// beforeEntry is between a summary and its entry.
var beforeEntry = func() {}

// Details is what a compaction of this package has as its details.
type Details struct {
	Agent     string   `json:"agent"`
	Summaries int      `json:"summaries"`       // that were written for compactions of the log so far, this one's included
	Cited     []string `json:"cited,omitempty"` // URLs of artifacts and agent outputs, in the order of their first mention
}

// played is how many summaries stand behind compactions of the log.
func (c *Compactor) played(ctx context.Context) (int, error) {
	for e, err := range c.Session.Backward(ctx) {
		if err != nil {
			return 0, err
		}
		if e.Type() != entry.TypeCompaction {
			continue
		}
		var b entry.Compaction
		var d Details
		if e.Decode(&b) == nil && json.Unmarshal(b.Details, &d) == nil && d.Agent == c.Agent && d.Summaries > 0 {
			return d.Summaries, nil
		}
	}
	return 0, nil
}

// wholeTokens counts a message as it is in the log, pruned or not.
func wholeTokens(m entry.ContextMessage) (int64, error) {
	message, err := whole(m)
	if err != nil {
		return 0, err
	}
	return tokensOf(message), nil
}

func whole(m entry.ContextMessage) (entry.Message, error) {
	if m.Synthetic {
		return m.Message()
	}
	return m.Entry().Message()
}

func tokensOf(m entry.Message) int64 {
	plain, ok := model.Plain(m)
	if !ok {
		return 0
	}
	return agent.MessageTokens(plain, Count)
}
