package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/agentrun/agentrun/session/entry"
)

// Bounds of an answer: one beyond them is an error, with what came before in its Partial.
const (
	MaxAnswer = 64 << 20 // of text, reasoning, arguments and signatures together, in bytes
	MaxBlocks = 4096
)

// Assemble is how a Model is written: it returns the stream of an answer that produce
// reports, piece by piece, to an [Answer], in the goroutine of whoever ranges over the
// stream.
//
// It keeps the promises of the package comment, so that no adapter has to: it checks the
// request, puts the answer together, times and prices it, and ends the stream once, with
// a Stop if produce returned nil after [Answer.Finish], otherwise with an *Error. An error
// of produce that is no *Error becomes one of [KindNetwork], or of [KindCut] if something had come.
//
// Methods of the Answer return an error when nobody listens any more or ctx is done;
// produce should return then, with that error or any other.
func Assemble(ctx context.Context, info Info, req *Request, produce func(context.Context, *Answer) error) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := Check(req, info); err != nil {
			yield(nil, &Error{Kind: KindInvalid, Message: err.Error(), Model: info.Name(), Err: err})
			return
		}
		// Whatever produce has open hangs on ctx, so that it ends when nobody listens.
		inner, cancel := context.WithCancel(ctx)
		defer cancel()
		a := &Answer{ctx: ctx, info: info, yield: yield, begun: time.Now()}
		err := ctx.Err()
		if err == nil {
			err = produce(inner, a)
		}
		if a.left {
			return
		}
		switch {
		case ctx.Err() != nil && (err != nil || a.stop == nil):
			err = &Error{Kind: KindCancelled, Message: cancelled(ctx), Err: ctx.Err()}
		case err == nil && a.failed != nil:
			err = a.failed
		case err == nil && a.stop == nil:
			err = &Error{Kind: KindCut, Message: "the answer broke off; ask again"}
		}
		if err == nil {
			yield(*a.stop, nil)
			return
		}
		yield(nil, a.fail(err))
	}
}

// cancelled says why ctx is done.
func cancelled(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "the time for the answer is over"
	}
	return "the request was cancelled"
}

// Answer is an answer while it is being put together. Its methods are for the produce
// function of [Assemble], and not for concurrent use.
//
// A delta may end within a character, whose rest begins the next one: within its bytes in UTF-8, or
// behind the first half of two in UTF-16, which then stands in the form of WTF-8.
//
// The key of a block is any number that the adapter tells its blocks apart by. The first
// delta with a new key begins a block.
type Answer struct {
	ctx   context.Context
	info  Info
	yield func(Event, error) bool
	begun time.Time
	first time.Time // when the first piece of the answer came

	blocks   []*block
	byKey    map[int64]*block
	size     int
	usage    entry.Usage
	response string
	upstream string

	left   bool   // nobody ranges over the stream any more
	failed *Error // the answer went beyond its bounds, or against the rules of this type
	stop   *Stop
}

// block is one block of an answer.
type block struct {
	kind  string // one of the Block constants of package entry
	index int
	text  strings.Builder // text, reasoning or arguments
	rest  string          // the beginning of a character whose end has not come
	sign  strings.Builder
	item  string
	call  entry.ToolCallBlock
	whole entry.Block // once it has ended
}

// Text is more of a text.
func (a *Answer) Text(key int64, delta string) error {
	return a.grow(key, entry.BlockText, delta)
}

// Thinking is more of the reasoning that the provider shows.
func (a *Answer) Thinking(key int64, delta string) error {
	return a.grow(key, entry.BlockThinking, delta)
}

// Sign adds to the signature of a text or of reasoning. It must go back to the provider
// with its block, to the byte.
func (a *Answer) Sign(key int64, kind, signature string) error {
	if signature == "" {
		return a.err()
	}
	b, err := a.at(key, kind)
	if err != nil {
		return err
	}
	if err := a.count(len(signature)); err != nil {
		return err
	}
	b.sign.WriteString(signature)
	return nil
}

// Item is the provider's id of a block of reasoning.
func (a *Answer) Item(key int64, id string) error {
	b, err := a.at(key, entry.BlockThinking)
	if err == nil {
		b.item = id
	}
	return err
}

// ToolCall begins a tool call.
func (a *Answer) ToolCall(key int64, id, name string) error {
	if a.byKey[key] != nil {
		return a.misuse("a tool call begins twice")
	}
	b, err := a.at(key, entry.BlockToolCall)
	if err != nil {
		return err
	}
	if err := a.count(len(id) + len(name)); err != nil {
		return err
	}
	b.call.ID, b.call.Name = strings.ToValidUTF8(id, "\uFFFD"), strings.ToValidUTF8(name, "\uFFFD")
	return a.emit(ToolCallStart{Block: b.index, ID: b.call.ID, Name: b.call.Name})
}

// Arguments is more of the arguments of a tool call that has begun.
func (a *Answer) Arguments(key int64, delta string) error {
	if a.byKey[key] == nil {
		return a.misuse("arguments come of a tool call that has not begun")
	}
	return a.grow(key, entry.BlockToolCall, delta)
}

// Has reports whether a block of this key has begun.
func (a *Answer) Has(key int64) bool { return a.byKey[key] != nil }

// End ends a block. One that never began, or has ended, is passed over: there are providers that
// end blocks in which they said nothing.
func (a *Answer) End(key int64) error {
	b := a.byKey[key]
	if b == nil || b.whole != nil {
		return a.err()
	}
	return a.end(b)
}

// Whole is a block that comes in one piece and has no deltas.
func (a *Answer) Whole(key int64, content entry.Block) error {
	b, err := a.at(key, content.BlockType())
	if err != nil {
		return err
	}
	raw, err := json.Marshal(content)
	if err != nil {
		return a.misuse("a block is no JSON")
	}
	if err := a.count(len(raw)); err != nil {
		return err
	}
	b.whole = content
	return a.emit(BlockEnd{Block: b.index, Content: content})
}

// maxCost is more than any answer costs, in US dollars.
const maxCost = 1e6

// Usage is what the answer has taken so far, in all; TotalTokens and Cost are computed. What it cost by its provider's own word,
// Cost.Total, counts where the prices of the model are not known.
func (a *Answer) Usage(u entry.Usage) error {
	for _, n := range []*int64{&u.Input, &u.Output, &u.CacheRead, &u.CacheWrite} {
		*n = min(max(*n, 0), math.MaxInt32) // what no answer has would overflow the sums of others
	}
	u.TotalTokens = u.Input + u.Output + u.CacheRead + u.CacheWrite
	if told := u.Cost.Total; a.info.Prices == nil && told > 0 { // which NaN is not
		u.Cost = entry.Cost{Total: min(told, maxCost)}
	} else {
		u.Cost = a.info.Prices.Cost(u)
	}
	a.usage = u
	return a.emit(UsageSoFar{Usage: u})
}

// Response is the provider's id of the answer, and the model that it says has answered, ""
// where that is the one that was asked.
func (a *Answer) Response(id, upstream string) {
	if upstream == a.info.ID {
		upstream = ""
	}
	const most = 256 // ids and names are shorter; this is a log line of somebody
	a.response, a.upstream = clip(id, most), clip(upstream, most)
}

// Retry says that the try so far failed and that another one begins after wait. It does
// not wait.
func (a *Answer) Retry(err *Error, wait time.Duration) error {
	a.blocks, a.byKey, a.size, a.usage, a.response, a.upstream = nil, nil, 0, entry.Usage{}, "", ""
	return a.emit(Retry{Err: err, Wait: wait})
}

// Finish is the end of the answer: nothing may follow. Blocks that are open end. The reason is
// [entry.StopStop], [entry.StopToolUse] or [entry.StopLength]; which of the first two it is
// is told by the blocks.
func (a *Answer) Finish(reason string) error {
	if err := a.err(); err != nil {
		return err
	}
	for _, b := range a.blocks {
		if b.whole == nil {
			if err := a.end(b); err != nil {
				return err
			}
		}
	}
	if n := len(a.blocks); reason == entry.StopLength && n > 0 {
		a.blocks[n-1].lackArguments()
	}
	m := a.message()
	switch {
	case reason == entry.StopLength:
	case len(m.Content.ToolCalls()) > 0:
		reason = entry.StopToolUse
	default:
		reason = entry.StopStop
	}
	m.StopReason = reason
	a.stop = &Stop{Message: m}
	return nil
}

// at returns the block of a key, and begins it if there is none.
func (a *Answer) at(key int64, kind string) (*block, error) {
	if err := a.err(); err != nil {
		return nil, err
	}
	b := a.byKey[key]
	switch {
	case b == nil && len(a.blocks) == MaxBlocks:
		return nil, a.misuse(fmt.Sprintf("the answer has more than %d blocks", MaxBlocks))
	case b == nil:
		b = &block{kind: kind, index: len(a.blocks)}
		a.blocks = append(a.blocks, b)
		if a.byKey == nil {
			a.byKey = map[int64]*block{}
		}
		a.byKey[key] = b
	case b.kind != kind:
		return nil, a.misuse(fmt.Sprintf("a block of %s goes on as %s", b.kind, kind))
	case b.whole != nil:
		return nil, a.misuse("a block goes on behind its end")
	}
	return b, nil
}

// grow adds a delta to a block.
func (a *Answer) grow(key int64, kind, delta string) error {
	if delta == "" {
		return a.err()
	}
	b, err := a.at(key, kind)
	if err != nil {
		return err
	}
	if err := a.count(len(delta)); err != nil {
		return err
	}
	delta, b.rest = whole(b.rest + delta)
	if delta == "" {
		return nil
	}
	b.text.WriteString(delta)
	switch kind {
	case entry.BlockText:
		return a.emit(TextDelta{Block: b.index, Text: delta})
	case entry.BlockThinking:
		return a.emit(ThinkingDelta{Block: b.index, Text: delta})
	}
	return a.emit(ToolCallDelta{Block: b.index, JSON: delta})
}

// end ends a block.
func (a *Answer) end(b *block) error {
	if b.rest != "" {
		b.text.WriteString("\uFFFD") // the rest of the character never came
		b.rest = ""
	}
	b.whole = b.content()
	return a.emit(BlockEnd{Block: b.index, Content: b.whole})
}

// lackArguments makes the arguments of a call invalid of which nothing came before the answer was cut: whether it was to have
// some nobody knows.
func (b *block) lackArguments() {
	if call, ok := b.whole.(entry.ToolCallBlock); ok && strings.TrimSpace(b.text.String()) == "" {
		call.Arguments = invalid("")
		b.whole = call
	}
}

// content is what there is of a block.
func (b *block) content() entry.Block {
	switch {
	case b.whole != nil:
		return b.whole
	case b.kind == entry.BlockText:
		return entry.TextBlock{Text: b.text.String(), Signature: b.sign.String()}
	case b.kind == entry.BlockThinking:
		return entry.ThinkingBlock{Thinking: b.text.String(), Signature: b.sign.String(), ItemID: b.item}
	}
	call := b.call
	call.Arguments = arguments(b.text.String())
	return call
}

// message is the answer as it stands, without a reason why it ended.
func (a *Answer) message() entry.AssistantMessage {
	content := make([]entry.Block, 0, len(a.blocks))
	for _, b := range a.blocks {
		content = append(content, b.content())
	}
	now := time.Now()
	m := entry.AssistantMessage{
		Content:       entry.Blocks(content...),
		API:           a.info.API,
		Provider:      a.info.Provider,
		Model:         a.info.ID,
		Usage:         a.usage,
		Timestamp:     a.begun.UnixMilli(),
		ResponseID:    a.response,
		UpstreamModel: a.upstream,
		Duration:      milliseconds(now.Sub(a.begun)),
	}
	if !a.first.IsZero() {
		m.TTFT = milliseconds(a.first.Sub(a.begun))
	}
	completed := float64(now.UnixMilli())
	m.CompletedAt = &completed
	return m
}

// fail is the error that a stream ends with.
func (a *Answer) fail(err error) *Error {
	var e Error
	if known := (*Error)(nil); errors.As(err, &known) {
		e = *known
	} else {
		e = Error{Kind: KindNetwork, Message: err.Error(), Err: err}
		if len(a.blocks) > 0 {
			e.Kind = KindCut
		}
	}
	if e.Model == "" {
		e.Model = a.info.Name()
	}
	if e.Partial == nil && (len(a.blocks) > 0 || a.usage.TotalTokens > 0) {
		m := a.message()
		m.StopReason = entry.StopError
		if e.Kind == KindCancelled {
			m.StopReason = entry.StopAborted
		}
		m.ErrorMessage = e.Error()
		if e.Status != 0 {
			m.ErrorStatus = &e.Status
		}
		e.Partial = &m
	}
	return &e
}

// emit hands on an event.
func (a *Answer) emit(e Event) error {
	if err := a.err(); err != nil {
		return err
	}
	switch e.(type) {
	case UsageSoFar, Retry:
	default:
		if a.first.IsZero() {
			a.first = time.Now()
		}
	}
	if !a.yield(e, nil) {
		a.left = true
	}
	return a.err()
}

// errLeft is returned to an adapter when nobody ranges over its stream any more.
var errLeft = errors.New("nobody reads the answer any more")

// err is why nothing more is taken, nil if something is.
func (a *Answer) err() error {
	switch {
	case a.left:
		return errLeft
	case a.failed != nil:
		return a.failed
	case a.ctx.Err() != nil:
		return a.ctx.Err()
	case a.stop != nil:
		return errors.New("the answer has ended")
	}
	return nil
}

// count takes n more bytes into account.
func (a *Answer) count(n int) error {
	if a.size += n; a.size > MaxAnswer {
		return a.misuse(fmt.Sprintf("the answer is longer than %d MiB", MaxAnswer>>20))
	}
	return nil
}

// misuse ends the answer: its provider does what none may.
func (a *Answer) misuse(what string) error {
	if err := a.err(); err != nil {
		return err
	}
	a.failed = &Error{Kind: KindServer, Message: what + "; this is the provider's mistake"}
	return a.failed
}

// whole splits a text behind its last character that is complete, and makes valid UTF-8 of
// the first part. Halves of a character of UTF-16 are put together.
func whole(s string) (text, rest string) {
	s = joined(s)
	for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
		if c := s[len(s)-i]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRuneInString(s[len(s)-i:]) || surrogate(s[len(s)-i:]) == 'h' {
				s, rest = s[:len(s)-i], s[len(s)-i:]
			}
			break
		}
	}
	return strings.ToValidUTF8(s, "\uFFFD"), rest
}

// surrogate reports whether a text begins with the first (h) or second (l) half of a character of
// UTF-16 in the form of WTF-8, or with neither (0).
func surrogate(s string) byte {
	switch {
	case len(s) < 3 || s[0] != 0xED || s[2]&0xC0 != 0x80:
		return 0
	case s[1]&0xF0 == 0xA0:
		return 'h'
	case s[1]&0xF0 == 0xB0:
		return 'l'
	}
	return 0
}

// joined puts halves together that stand side by side.
func joined(s string) string {
	at := strings.IndexByte(s, 0xED)
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0; at = strings.IndexByte(s, 0xED) {
		b.WriteString(s[:at])
		if s = s[at:]; surrogate(s) == 'h' && surrogate(s[3:]) == 'l' {
			b.WriteRune(utf16.DecodeRune(half(s), half(s[3:])))
			s = s[6:]
			continue
		}
		b.WriteByte(s[0])
		s = s[1:]
	}
	b.WriteString(s)
	return b.String()
}

// half is the surrogate that a text begins with.
func half(s string) rune { return rune(s[0]&0x0F)<<12 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F) }

// clip shortens a text that has no reason to be long.
func clip(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "")
}

func milliseconds(d time.Duration) *float64 {
	ms := float64(d.Microseconds()) / 1000
	return &ms
}
