//go:build race

package record

// raceEnabled: the race detector makes slices escape that otherwise do not.
const raceEnabled = true
