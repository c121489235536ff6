// Package etcdproxy lets agents use etcd with the rights of their node: it serves the part of etcd's gRPC
// API that libs/store uses, and passes on only what the node may read and write. An agent
// uses it like etcd. The proxy keeps no state, so an agent may use several of them at a time.
//
//	calls     KV.Range, KV.Txn, Watch.Watch, Lease.LeaseGrant, LeaseRevoke and LeaseKeepAlive
//	reads     the node's own records, placements and orders; plans by digest, intents and statuses by id;
//	          crashes of its instances; records of nodes, addresses of the template service; moves
//	writes    the node's record, session, reports and players; statuses, crashes and copies of its instances
//	leases    those that were granted to the node through a proxy, and that of its session
//
// Everything else fails with PermissionDenied. A node that makes too many calls is delayed. The identity of the caller's certificate says which node
// it is. Its calls end when the certificate expires and when the node is revoked.
package etcdproxy
