//go:build race

package bash

// underRace: the race detector makes every byte ten times as dear.
const underRace = true
