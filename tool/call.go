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
