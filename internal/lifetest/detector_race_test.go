//go:build race

package lifetest

// raceDetector makes what compresses and hashes many times slower.
const raceDetector = true
