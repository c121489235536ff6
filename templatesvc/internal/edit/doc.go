// Package edit edits and searches the file tree of a template.
//
// It works on manifests. The only file content it sees is the text that it searches.
// Invariants:
//   - A path that Clean returns is always inside the tree.
//   - A directory exists while something is in it, or because it was created. It stays when
//     an edit empties it.
//   - Nothing is written through a link or below a file.
//   - A failed edit has changed nothing.
package edit
