package tool

import "context"

type callKey struct{}

// call is whose call it is, and its id.
type call struct{ agent, id string }

// WithCall returns a context for a call that the model of an agent made under id, as the log has it.
func WithCall(ctx context.Context, agent, id string) context.Context {
	return context.WithValue(ctx, callKey{}, call{agent, id})
}

// CallOf returns the id of the call that ctx is of, "" for none. Other agents may have calls of the same id.
func CallOf(ctx context.Context) string {
	c, _ := ctx.Value(callKey{}).(call)
	return c.id
}

// OriginOf is what tools write into the provenance of the artifacts they make in a call, artifacts.Provenance.Call, so that those of one
// that a crash cut off are found: see [Origin]. It is "" outside a call.
func OriginOf(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(call); ok {
		return Origin(c.agent, c.id)
	}
	return ""
}

// Origin names a call among those of all agents that share artifacts.
func Origin(agent, id string) string { return agent + "/" + id }

type hiddenKey struct{}

// WithHidden returns a context for a call that shows no file for which hidden reports true: path is its name as the tool has it,
// relative to where its paths begin or absolute, real the absolute one without symbolic links. hidden may be called from any
// number of goroutines; nil hides nothing.
func WithHidden(ctx context.Context, hidden func(path, real string) bool) context.Context {
	if hidden == nil {
		return ctx
	}
	return context.WithValue(ctx, hiddenKey{}, hidden)
}

// HiddenOf returns which files a call does not show; nil is for none. Tools that look through directories ask it of each.
func HiddenOf(ctx context.Context) func(path, real string) bool {
	hidden, _ := ctx.Value(hiddenKey{}).(func(path, real string) bool)
	return hidden
}
