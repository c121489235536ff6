package storetest

import (
	"strings"
	"testing"
)

// Wire is a way of its own to an etcd, for those who are to lose it while others do not.
type Wire struct {
	gate *gate
	to   string
}

// Wire lays one; it lasts as long as the test, whatever happens to the etcd.
func (e *Etcd) Wire(t testing.TB) *Wire {
	t.Helper()
	w := &Wire{gate: newGate(t), to: strings.TrimPrefix(e.Endpoint, "http://")}
	w.Mend()
	return w
}

// Endpoint is the etcd's client URL at the near end.
func (w *Wire) Endpoint() string { return w.gate.url() }

// Sever ends all connections and lets none through until Mend.
func (w *Wire) Sever() { w.gate.close() }

// Mend lets connections through again.
func (w *Wire) Mend() { w.gate.open(w.to) }
