// Package edit turns one tree of a template's files into another, and reads in it.
//
// It computes on manifests only: no content passes through it but text that is
// searched. Invariants:
//   - A path that Clean returned names something inside the tree, whatever was asked.
//   - A directory exists while something lies in it, or because it was made; emptying
//     it by an edit leaves it.
//   - Nothing is written through a link or below a file.
//   - An edit that fails has changed nothing.
package edit
