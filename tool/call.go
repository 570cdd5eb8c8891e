package tool

import "context"

type callKey struct{}

// WithCall returns a context for a call that a model made under id, as the log has it. Tools write it into the
// provenance of the artifacts they make, so that those of a call that a crash cut off are found.
func WithCall(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callKey{}, id)
}

// CallOf returns the id of the call that ctx is of, "" for none.
func CallOf(ctx context.Context) string {
	id, _ := ctx.Value(callKey{}).(string)
	return id
}

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
