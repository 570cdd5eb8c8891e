// Package script plays a script in the place of a language model, so that tests and
// demonstrations need no network, no key and no luck. model/record makes scripts of real
// conversations.
//
// # The format, version 1
//
// JSON lines. Each line is what one agent's model does once. The lines of an agent are
// played in their order; those of different agents may stand mixed.
//
//	{"agent":"main","say":[{"text":"I look."},{"call":"read","args":{"path":"go.mod"}}]}
//	{"agent":"main","expect":{"results":[{"text":"module"}]},"say":[{"text":"It is a Go module."}]}
//
// A line has these members, and no others:
//
//	agent   whose model it is: "main", or the output id of a subagent, "0-Review". With * or ?
//	        it is a pattern as of path.Match, for agents that have no line of their own;
//	        of several patterns that match, the one that stands first counts.
//	        "main/compact" writes the summaries of main's conversation (see agent/compact); its
//	        turns are the summaries before.
//	expect  what the request must be like; see below
//	say     the steps of the answer, in their order; see below
//	stop    "length" for an answer that ends at its limit. Otherwise the end is that of
//	        a model that has said all, or wants its tool calls answered.
//	times   how many times in a row the line is played: 1 if it is left out, -1 for ever
//	note    anything; for readers
//
// The first line may be of another form, {"script":1,"model":{...}}, and say what the model
// is: id, contextWindow, maxOutput, prices {input, output, cacheRead, cacheWrite} in US
// dollars for a million tokens, images {maxCount, maxEdge, maxBytes}. Without it
// the model is the script's name, with a window of 200,000 tokens.
//
// # Steps
//
// Each is an object with one of these members:
//
//	{"text":"Hello"}                  a text. A list of strings is streamed piece by piece; text
//	                                  behind text goes on in the same block. It may have a
//	                                  signature too, and is all of its block then.
//	{"thinking":"Hm.","signature":"c2ln"}   reasoning, with or without a signature
//	{"redacted":"ZGF0YQ=="}           reasoning that only a provider can read
//	{"call":"read","args":{...}}      a tool call. "id" names it; else it is
//	                                  call_<line>_<turn>_<number>. "rawArgs" in place of args is a
//	                                  string or a list of pieces that may be no JSON at all.
//	{"parallel":[{...},{...}]}        text, thinking and calls of which the pieces come by turns
//	{"delay":"50ms"}                  waits, or until the request is cancelled
//	{"hang":true}                     waits until the request is cancelled
//	{"usage":{"input":10,"output":5}} tokens so far; also cacheRead, cacheWrite, reasoningTokens
//	{"retry":{"kind":"overloaded","retryAfter":"1s"}}   says that a try failed; what was said is void
//	{"error":{"kind":"rate-limit","status":429,"retryAfter":"2s","message":"..."}}   fails;
//	                                  the kinds are those of package model
//	{"cut":true}                      the stream breaks off
//
// "repeat":1000 beside text, thinking or rawArgs streams the pieces so many times, not within
// parallel. Error, cut and hang are the last step of their line.
//
// # Expectations
//
// All of them must hold; the first that does not is an error that names the line, the agent
// and what was sent instead, and that no retry mends.
//
//	{"system":"careful"}              the system prompt contains this; a list: each of these
//	{"messages":3}                    so many messages are sent
//	{"last":{"role":"user","text":"fix"}}   role of the last message, and what its text contains
//	{"tools":["read"]}                these tools are offered, others may be
//	{"noTools":["write"]}             these are not
//	{"results":[{"call":"c1","text":"ok","isError":false}]}   for each there is a tool result
//	                                  behind the last turn of the model, of this call, that
//	                                  contains this; each member may be left out
//	{"contains":"..."}                some message says this; a list: each of these
//	{"thinking":"high"}               the level of thinking
//
// # Whose turn it is
//
// A request carries its agent, and its turn: the number of answers in that agent's own
// log. Turn 0 is answered by the first line of the agent that has an end, turn 1 by the
// second, and so on, in whatever order agents ask, in whatever process. So parallel
// subagents and a resumed run get the same answers as an undisturbed one.
//
// Lines that end with error, cut or hang are no turns, because they leave no answer in
// the log: they are played before the turn that follows them, one for each time that it is asked
// for. How often that was is forgotten with the process.
//
// An agent that asks for more than its script has gets an error that says so.
//
// A script is hostile until it is read: [New] refuses, naming the line, whatever is not
// as above or beyond the bounds of this package.
package script
