//go:build race

package session_test

// raceDetector makes what compresses and hashes many times slower.
const raceDetector = true
