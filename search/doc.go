// Package search finds words in the sessions of a home: in entries, in the output
// that tools left, in what agents handed back, and in the sessions of subagents.
package search
