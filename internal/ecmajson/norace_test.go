//go:build !race

package ecmajson

const raceEnabled = false
