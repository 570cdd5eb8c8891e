//go:build !race

package bash

const underRace = false
