// Package editor implements the API's operations on a template's files, on top of package
// edit. It reads versions by their digest and writes new ones.
//
// A version never changes, so every replica that has its content gives the same answer.
// Errors about the content of a version are therefore a FinalError. Only if a version or
// content is missing may another replica succeed.
//
// A change first stores its content under a publish. It is then computed from the current
// head and committed as one version. A refused change leaves only content that is collected
// later.
package editor
