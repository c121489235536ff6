// Package upstream calls the other services. Each upstream has a circuit breaker, so that one that does
// not answer delays few callers.
//
// Invariants:
//
//   - A breaker counts only failures of the upstream: no response or an internal error. Canceled
//     requests, 4xx responses and errors about third services do not count.
//   - Calls that may take minutes (uploads, downloads to a node) count only if there was no response
//     at all. They are never the trial call of a half-open breaker.
//   - A call to the template service ends some seconds after its replica stopped answering, whatever
//     its size and however slow the sender.
//   - Errors keep their Kind and name the service that did not answer.
//   - Upstreams provide bytes and live figures only; they make no decisions for the gateway.
package upstream
