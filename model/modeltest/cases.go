package modeltest

import (
	"testing"
)

// cases are the parts of the suite.
var cases = []struct {
	name string
	skip func(Options) bool
	run  func(*testing.T, Options)
}{
	{"text is streamed and whole at the end", nil, testText},
	{"text with every kind of character is kept", nil, testCharacters},
	{"thinking goes back with its signature to the byte", func(o Options) bool { return o.NoSignatures }, testSignature},
	{"redacted thinking goes back", func(o Options) bool { return o.NoRedacted }, testRedacted},
	{"parallel tool calls are put together and answered", nil, testToolCalls},
	{"a call without arguments has none", nil, testNoArguments},
	{"arguments that are no JSON are handed on", nil, testInvalidArguments},
	{"usage and cost are recorded", nil, testUsage},
	{"an answer that ends at its limit says so", nil, testLength},
	{"an empty answer is an answer", nil, testEmpty},
	{"cancelling ends within one event", nil, testCancel},
	{"cancelling a hung request ends it", nil, testHang},
	{"a reader who leaves ends the request", nil, testLeave},
	{"errors have kinds", nil, testErrors},
	{"errors within a stream have kinds and what came before", nil, testErrorsWithin},
	{"a refusal is an error", nil, testRefused},
	{"a cut stream is an error with what came before", nil, testCut},
	{"garbage is an error", nil, testGarbage},
	{"ten megabytes take no more than they are", nil, testLong},
	{"images are sent", nil, testImages},
	{"images beyond the limits give way to words", func(o Options) bool { return o.NoImageLimits }, testImageLimits},
	{"a request that nobody takes is not sent", nil, testCheck},
	{"streams go on beside each other", nil, testConcurrent},
}
