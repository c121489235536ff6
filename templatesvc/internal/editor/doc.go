// Package editor is what people do with a template's files, on top of package edit:
// it reads versions by their digest, and writes new ones.
//
// A version never changes, so any replica that has its content answers alike. Errors
// about what a version holds are final; only a missing version or content may be known
// elsewhere.
//
// A change stores what it brings under a publish, is computed from the head of the moment
// it is committed at, and is one version; a refused one leaves no trace but content that is
// collected later.
package editor
