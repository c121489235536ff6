// Package rest serves Orrery's own API under /api/v1: one file per resource.
//
// It speaks the field names, paths and statuses of the newer of the two foreign
// dialects where that has them, and adds beside them what it lacks.
//
// Invariants:
//
//   - A field nobody knows is refused by name; those that clients are known to send
//     and that mean nothing here are accepted and ignored, and so are read-only
//     fields, so that what was read can be sent back.
//   - A read loses nothing: every part of a group's spec is in its JSON, and
//     writing it back unchanged changes nothing.
//   - Handlers decide nothing about the fleet: that is package operate's.
package rest
