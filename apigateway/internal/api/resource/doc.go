// Package resource holds what the handlers of /api/v1 share: page sizes, records that are read and
// written by name, merge patches, and the differences that dry runs answer with.
package resource
