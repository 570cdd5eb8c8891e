//go:build race

package bundle

// raceDetector makes an enumeration of faults take minutes, and finds nothing in it: one
// goroutine does one thing.
const raceDetector = true
