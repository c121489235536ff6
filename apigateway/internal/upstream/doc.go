// Package upstream is how the gateway reaches other services: each behind its own
// breaker, so that one that does not answer costs a caller a moment once, and then
// nothing until it is tried again.
//
// Invariants:
//
//   - A breaker counts what is the other side's fault: no answer, or an internal
//     error. What the caller caused (a cancelled request, a 4xx) says nothing about
//     the other side's health, nor does an answer that somebody else is away.
//   - What may take minutes (uploads, downloads to a node) is counted only where nothing
//     came of it at all, and never the one call by which a breaker tries whether its
//     upstream is back.
//   - A call to the template service ends some seconds after its replica stopped answering,
//     however large it is and whoever is slow to send it.
//   - Errors keep their Kind, and say in words which service did not answer.
//   - Nothing reached here decides anything: bytes and live figures only.
package upstream
