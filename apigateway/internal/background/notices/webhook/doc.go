// Package webhook builds, signs and sends the requests of outgoing notices.
//
// Everything but Sender is pure.
package webhook
