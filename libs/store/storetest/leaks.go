package storetest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain is goleak's for packages that use a Cluster: a killed member may
// leave one connection to a peer behind, which ends by its own read timeout of 5 s.
// Nothing else here speaks HTTP.
func VerifyTestMain(m *testing.M) {
	goleak.VerifyTestMain(
		m,
		goleak.IgnoreAnyFunction("go.etcd.io/etcd/client/pkg/v3/transport.timeoutConn.Read"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).abortPendingRead"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	)
}
