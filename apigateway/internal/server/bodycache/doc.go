// Package bodycache keeps encoded responses, so that frequent requests do not encode them again.
//
//	Objects  single objects, each until one of its source records changes
//	Memo     lists and other composite responses, until the snapshot version changes
//	Body     a composite response, plain and compressed
//
// A cached body is never stale: its source records or its version are compared on each lookup.
// The package does not check permissions. Callers must cache only what all recipients see alike,
// or make the difference part of the key or the version.
package bodycache
