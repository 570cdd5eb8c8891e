//go:build !race

package lifetest

const raceDetector = false
