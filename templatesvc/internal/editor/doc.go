// Package editor is what people do with a template's files, on top of package edit:
// it reads versions by their digest.
//
// A version never changes, so any replica that has its content answers alike. Errors
// about what a version holds are final; only a missing version or content may be known
// elsewhere.
package editor
