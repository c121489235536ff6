package etcdproxy

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// Place says where an instance is.
type Place struct {
	// Placed is the node of its placement, with the placement's generation; empty without one.
	Placed           fleet.NodeID
	PlacedGeneration int64
	// Reported is the node of its last status, with the status' generation; empty without one.
	Reported           fleet.NodeID
	ReportedGeneration int64
	Group              fleet.GroupName
}

// generation returns the latest generation that a node may report; 0 if the instance is not on it.
func (p Place) generation(node fleet.NodeID) int64 {
	switch {
	case p.Placed == node:
		return p.PlacedGeneration
	case p.Reported != node:
		return 0
	case p.Placed == "":
		return p.ReportedGeneration
	}
	return min(p.ReportedGeneration, p.PlacedGeneration-1) // the next generation is on another node
}

// Facts are what the rules need to know about the fleet.
type Facts interface {
	// PlaceOf returns where an instance is. It reads etcd if it does not know that the node may report a
	// generation.
	PlaceOf(ctx context.Context, id fleet.InstanceID, generation int64) (Place, error)
	// Seen is PlaceOf without a read: it may know nothing of an instance yet.
	Seen(id fleet.InstanceID) Place
	// MoveTarget returns the target of an instance's latest move; empty if there is none.
	MoveTarget(ctx context.Context, id fleet.InstanceID) (fleet.NodeID, error)
}

const (
	// maxOperations is etcd's own limit of comparisons, and of operations, in a transaction.
	maxOperations = 128
	// maxValue bounds a record, in bytes. The largest honest ones are crash tails and records of nodes.
	maxValue = 512 << 10
)

// rules are what one node may do.
type rules struct {
	node  fleet.NodeID
	facts Facts
	// prefixes may be read in whole or in part, exact keys alone.
	prefixes []string
	exact    map[string]bool
}

func rulesOf(node fleet.NodeID, facts Facts) rules {
	return rules{
		node: node, facts: facts,
		prefixes: []string{
			keys.PlacementsOn(node).String(), keys.OrdersOn(node).String(), keys.ReportPartsOn(node).String(), keys.PlayersOn(node).String(),
			keys.Node("").String(), keys.Moves().String(), keys.Sessions(pki.Templates).String(),
		},
		exact: map[string]bool{
			keys.Meta().String(): true, keys.NodeDesired(node).String(): true, keys.NodeSession(node).String(): true, keys.Report(node).String(): true,
			keys.RevokedNode(node).String(): true, keys.DeletedNode(node).String(): true,
		},
	}
}

func denied(format string, args ...any) error {
	return status.Errorf(codes.PermissionDenied, format, args...)
}

// read checks the read of a key, or of a range if end is not empty.
func (r rules) read(ctx context.Context, key, end []byte, countOnly bool) error {
	from, to := string(key), string(end)
	for _, p := range r.prefixes {
		if strings.HasPrefix(from, p) && (to == "" || to <= clientv3.GetPrefixRangeEnd(p)) && to != "\x00" {
			return nil
		}
	}
	switch sessions := keys.NodeSessions().String(); {
	case countOnly && from == sessions && to == clientv3.GetPrefixRangeEnd(sessions):
		return nil
	case to != "":
		return denied("node %s may not read the range from %s to %s", r.node, from, to)
	case r.exact[from]:
		return nil
	}
	return r.readOne(ctx, from)
}

// readOne checks the read of one key whose right depends on an instance.
func (r rules) readOne(ctx context.Context, key string) error {
	kind, rest, _ := keys.Split(key)
	if len(rest) == 1 {
		switch id := rest[0]; kind {
		case kindPlan, kindIntent, kindStatus: // by the digest, or by the id of an instance that was here once
			return nil
		case kindTenant: // the number of a group is no secret
			return nil
		case kindCrash, kindCrashTail:
			return r.placed(ctx, key, instanceOf(id))
		case kindCopy:
			return r.moving(ctx, key, fleet.InstanceID(id))
		}
	}
	return denied("node %s may not read %s", r.node, key)
}

// The kinds of keys with an instance or a group in them.
const (
	kindPlan      = "plans"
	kindTenant    = "tenants"
	kindIntent    = "instances"
	kindStatus    = "status"
	kindCrash     = "crashes"
	kindCrashTail = "crash-tails"
	kindCopy      = "copies"
)

// instanceOf returns the instance in the id of a crash; see reports.CrashID.
func instanceOf(crash string) fleet.InstanceID {
	id, _, _ := strings.Cut(crash, "-")
	return fleet.InstanceID(id)
}

// placed checks that an instance is on the node.
func (r rules) placed(ctx context.Context, key string, id fleet.InstanceID) error {
	place, err := r.facts.PlaceOf(ctx, id, 1)
	return r.require(key, place.generation(r.node) > 0, err)
}

// moving checks that an instance moves to the node.
func (r rules) moving(ctx context.Context, key string, id fleet.InstanceID) error {
	target, err := r.facts.MoveTarget(ctx, id)
	return r.require(key, target == r.node, err)
}

func (r rules) require(key string, ok bool, err error) error {
	switch {
	case err != nil:
		return err
	case !ok:
		return denied("node %s may not use %s: the instance is not on it", r.node, key)
	}
	return nil
}

// own checks that no instance is known to be on another node only. One without a record is none of others', because
// the agent learns later than etcd that a record was removed.
func (r rules) own(key string, ids iter.Seq[fleet.InstanceID]) error {
	for id := range ids {
		place := r.facts.Seen(id)
		known := place.Placed != "" || place.Reported != ""
		if err := r.require(key, !known || place.generation(r.node) > 0, nil); err != nil {
			return err
		}
	}
	return nil
}

// transaction checks all parts of a transaction. The leases of its writes are left to the caller.
func (r rules) transaction(ctx context.Context, t *etcdserverpb.TxnRequest) error {
	if max(len(t.Compare), len(t.Success), len(t.Failure)) > maxOperations {
		return denied("node %s may not use more than %d operations in a transaction", r.node, maxOperations)
	}
	for _, c := range t.Compare {
		if len(c.RangeEnd) > 0 {
			return denied("node %s may not compare a range of keys", r.node)
		}
		if err := r.read(ctx, c.Key, nil, false); err != nil {
			return err
		}
	}
	for _, op := range t.Success {
		if err := r.operation(ctx, op); err != nil {
			return err
		}
	}
	for _, op := range t.Failure {
		if err := r.operation(ctx, op); err != nil {
			return err
		}
	}
	return nil
}

func (r rules) operation(ctx context.Context, op *etcdserverpb.RequestOp) error {
	switch of := op.Request.(type) {
	case *etcdserverpb.RequestOp_RequestRange:
		return r.read(ctx, of.RequestRange.Key, of.RequestRange.RangeEnd, of.RequestRange.CountOnly)
	case *etcdserverpb.RequestOp_RequestPut:
		p := of.RequestPut
		session := string(p.Key) == keys.NodeSession(r.node).String()
		switch {
		case p.PrevKv || p.IgnoreValue || p.IgnoreLease:
			return denied("node %s may not use options of writes", r.node)
		case session != (p.Lease != 0):
			return denied("node %s must write its session with a lease, and nothing else", r.node)
		case len(p.Value) > maxValue:
			return denied("node %s may not write records of more than %d bytes", r.node, maxValue)
		}
		return r.write(ctx, string(p.Key), p.Value)
	case *etcdserverpb.RequestOp_RequestDeleteRange:
		d := of.RequestDeleteRange
		if len(d.RangeEnd) > 0 || d.PrevKv {
			return denied("node %s may not delete a range of keys", r.node)
		}
		return r.remove(string(d.Key))
	}
	return denied("node %s may not nest transactions", r.node)
}

// remove checks the deletion of a key.
func (r rules) remove(key string) error {
	if key == keys.NodeSession(r.node).String() || r.isFigures(key) || r.isPlayers(key) {
		return nil
	}
	return denied("node %s may not delete %s", r.node, key)
}

// isFigures and isPlayers report whether a key is that of a part of the node's reports.
func (r rules) isFigures(key string) bool {
	return isPart(key, keys.ReportPartsOn(r.node).String(), fleet.ReportParts)
}

func (r rules) isPlayers(key string) bool {
	return isPart(key, keys.PlayersOn(r.node).String(), players.PresenceParts)
}

func isPart(key, prefix string, parts int) bool {
	text, ok := strings.CutPrefix(key, prefix)
	n, err := strconv.Atoi(text)
	return ok && err == nil && n >= 0 && n < parts && strconv.Itoa(n) == text
}

// write checks the write of a key. Readers of a record believe the ids in it, so they must agree with the
// key.
func (r rules) write(ctx context.Context, key string, value []byte) error {
	switch {
	case key == keys.Node(r.node).String():
		return agrees(key, value, func(n *fleet.Node) bool { return n.ID == r.node })
	case key == keys.NodeSession(r.node).String():
		return agrees(key, value, func(s *fleet.NodeSession) bool { return s.Node == r.node })
	case key == keys.Report(r.node).String():
		return agrees(key, value, func(p *reports.Report) bool { return p.Node == r.node })
	case r.isFigures(key):
		var part reports.ReportPart
		if err := decode(key, value, &part); err != nil {
			return err
		}
		return r.own(key, maps.Keys(part.Instances))
	case r.isPlayers(key):
		var part players.PresencePart
		if err := decode(key, value, &part); err != nil {
			return err
		}
		return r.own(key, func(yield func(fleet.InstanceID) bool) {
			for _, p := range part.Players {
				if !yield(p.By) {
					return
				}
			}
		})
	}
	return r.writeOf(ctx, key, value)
}

// writeOf checks the write of a record of an instance.
func (r rules) writeOf(ctx context.Context, key string, value []byte) error {
	kind, rest, _ := keys.Split(key)
	if len(rest) != 1 {
		return denied("node %s may not write %s", r.node, key)
	}
	name, id := rest[0], instanceOf(rest[0])
	switch kind {
	case kindStatus:
		return r.report(ctx, key, value, fleet.InstanceID(name))
	case kindCrash:
		return r.crash(ctx, key, value, name)
	case kindCrashTail:
		if err := agrees(key, value, func(c *reports.CrashTail) bool { return c.ID == name }); err != nil {
			return err
		}
		return r.placed(ctx, key, id)
	case kindCopy:
		if err := agrees(key, value, func(c *move.Copy) bool { return string(c.Instance) == name && c.Node == r.node }); err != nil {
			return err
		}
		return r.moving(ctx, key, id)
	}
	return denied("node %s may not write %s", r.node, key)
}

// report checks the write of a status.
func (r rules) report(ctx context.Context, key string, value []byte, id fleet.InstanceID) error {
	var s fleet.Status
	if err := decode(key, value, &s); err != nil {
		return err
	}
	place, err := r.facts.PlaceOf(ctx, id, s.Generation)
	if err == nil && (s.Instance != id || s.Node != r.node || s.Group != place.Group) {
		err = denied("the record for %s names another node, group or instance", key)
	}
	return r.require(key, s.Generation > 0 && s.Generation <= place.generation(r.node), err)
}

// crash checks the write of a crash.
func (r rules) crash(ctx context.Context, key string, value []byte, name string) error {
	var c reports.Crash
	if err := decode(key, value, &c); err != nil {
		return err
	}
	id := instanceOf(name)
	place, err := r.facts.PlaceOf(ctx, id, c.Generation)
	run, ok := strings.CutPrefix(name, fmt.Sprintf("%s-%d-", id, c.Generation))
	if n, wrong := strconv.Atoi(run); err == nil && (!ok || wrong != nil || name != reports.CrashID(id, c.Generation, n)) {
		err = denied("%s is not the key of a crash", key)
	}
	if err == nil && (c.ID != name || c.Instance != id || c.Node != r.node || c.Group != place.Group) {
		err = denied("the record for %s names another node, group or instance", key)
	}
	return r.require(key, c.Generation > 0 && c.Generation <= place.generation(r.node), err)
}

// agrees decodes a record and checks that it says what its key says.
func agrees[T any](key string, value []byte, ok func(*T) bool) error {
	var v T
	if err := decode(key, value, &v); err != nil {
		return err
	}
	if !ok(&v) {
		return denied("the record for %s names another node or instance", key)
	}
	return nil
}

func decode(key string, value []byte, into any) error {
	if err := json.Unmarshal(value, into); err != nil {
		return denied("the record for %s is not valid: %v", key, err)
	}
	return nil
}
