//go:build !race

package bundle

const raceDetector = false
