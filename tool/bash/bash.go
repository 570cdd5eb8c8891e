// Package bash runs commands for an agent so that nothing they print is lost and nothing they start stays.
//
// [Process] is the runner alone: one child, its own process group, a timeout, cancellation. [Run] ties it to a
// session.
package bash
