package storetest

import (
	"strings"
	"testing"
)

// Wire is a separate connection to an etcd that can be cut without affecting other clients.
type Wire struct {
	gate *gate
	to   string
}

// Wire returns a new wire. It exists until the test ends.
func (e *Etcd) Wire(t testing.TB) *Wire {
	t.Helper()
	w := &Wire{gate: newGate(t), to: strings.TrimPrefix(e.Endpoint, "http://")}
	w.Mend()
	return w
}

// Endpoint returns the client URL of the etcd through this wire.
func (w *Wire) Endpoint() string { return w.gate.url() }

// Sever closes all connections and refuses new ones until Mend.
func (w *Wire) Sever() { w.gate.close() }

// Mend accepts connections again.
func (w *Wire) Mend() { w.gate.open(w.to) }
