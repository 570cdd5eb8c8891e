// Package floors holds the house together: its tests fail when a package imports
// one that stands above it, when session pulls in what a program that only keeps
// logs must not carry, and when a package has no package comment, or two.
//
// ARCHITECTURE.md draws the floors that the table in the test states.
package floors
