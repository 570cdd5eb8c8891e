// Package interop holds the check that the programs whose session format
// agentrun shares, pi and oh-my-pi, work with the same files: the real ones open
// sessions written here, continue and rename them, and agentrun goes on with what
// they leave; and the other way round.
//
// The check is in the package's tests. It needs an npm installation of both
// programs, pinned to the versions in .ci/run, in the directory that
// AGENTRUN_INTEROP_DIR names; without one it is skipped. The scripts that drive the
// programs are in js; they get private homes, and never see those of the user.
package interop
