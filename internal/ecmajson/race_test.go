//go:build race

package ecmajson

// raceEnabled tells that sync.Pool forgets some of what it is given, on purpose.
const raceEnabled = true
