package etcdproxy

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// maxLease is the longest lease of a node, in seconds: the session of a node that is revoked lives on for as long.
const maxLease = 300

// leaseCost is for how many bytes of requests a lease counts, because etcd keeps it.
const leaseCost = 1 << 20

// leaseKeys make and recognize the ids of leases. An id is a random number and a code of it and of the node,
// so that every proxy knows whose it is, and nobody can guess the id of another node's lease.
type leaseKeys struct{ key []byte }

// codeBits are the bits of the code in an id. The others, without the sign, are random.
const codeBits = 40

func newLeaseKeys(secret string) leaseKeys {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("leases of nodes"))
	return leaseKeys{h.Sum(nil)}
}

// fresh returns a new id of a node's lease.
func (l leaseKeys) fresh(node fleet.NodeID) int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return l.id(node, binary.BigEndian.Uint64(b[:])>>(codeBits+1))
}

func (l leaseKeys) id(node fleet.NodeID, random uint64) int64 {
	h := hmac.New(sha256.New, l.key)
	_ = binary.Write(h, binary.BigEndian, random)
	h.Write([]byte(node))
	code := binary.BigEndian.Uint64(h.Sum(nil)[:8]) >> (64 - codeBits)
	return int64(random<<codeBits | code)
}

// of reports whether a lease was granted to a node.
func (l leaseKeys) of(node fleet.NodeID, id int64) bool {
	return id > 0 && l.id(node, uint64(id)>>codeBits) == id
}

// leases serves etcd's Lease API to nodes.
type leases struct {
	pb.UnimplementedLeaseServer
	p *Proxy
}

// LeaseGrant grants a lease whose id the proxy chooses.
func (s leases) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	node := NodeOf(ctx)
	if err := s.p.limits.wait(ctx, node, leaseCost); err != nil {
		return nil, err
	}
	if r.ID != 0 || r.TTL > maxLease {
		return nil, denied("node %s may not choose the id of a lease, nor one of more than %d s", node, maxLease)
	}
	return s.p.etcd.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: r.TTL, ID: s.p.leases.fresh(node)})
}

// LeaseRevoke revokes a lease of the node.
func (s leases) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	if err := s.p.ownsLease(ctx, r.ID); err != nil {
		return nil, err
	}
	return s.p.etcd.lease.LeaseRevoke(ctx, r)
}

// LeaseKeepAlive renews leases of the node.
func (s leases) LeaseKeepAlive(down pb.Lease_LeaseKeepAliveServer) error {
	ctx, cancel := context.WithCancel(down.Context())
	defer cancel()
	up, err := s.p.etcd.lease.LeaseKeepAlive(forwarded(ctx))
	if err != nil {
		return err
	}
	for {
		r, err := down.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.p.limits.wait(ctx, NodeOf(ctx), 0); err != nil {
			return err
		}
		if err := s.p.ownsLease(ctx, r.ID); err != nil {
			return err
		}
		if err := up.Send(r); err != nil {
			return err
		}
		answer, err := up.Recv()
		if err != nil {
			return err
		}
		if err := down.Send(answer); err != nil {
			return err
		}
	}
}

// ownsLease checks that a lease is the node's. A node that used etcd itself before has a session whose lease
// the proxy did not grant.
func (p *Proxy) ownsLease(ctx context.Context, id int64) error {
	node := NodeOf(ctx)
	if p.leases.of(node, id) {
		return nil
	}
	r, err := p.etcd.kv.Range(ctx, &pb.RangeRequest{Key: []byte(keys.NodeSession(node).String())})
	switch {
	case err != nil:
		return err
	case len(r.Kvs) == 1 && r.Kvs[0].Lease == id:
		return nil
	}
	return denied("node %s may not use the lease %x", node, id)
}
