package keys

import (
	"fmt"
	"strconv"

	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/notice"
)

// The keys of the cluster itself.

// Meta identifies the cluster and the schema of its keys. Written by the first program that
// joins.
func Meta() Key[cluster.Meta] { return Key[cluster.Meta]{Root + "meta/schema"} }

// SecretFingerprint is a slow hash of the cluster secret. A program with another secret is
// refused. Written by the first program that joins.
func SecretFingerprint() Key[cluster.SecretFingerprint] {
	return Key[cluster.SecretFingerprint]{Root + "meta/secret"}
}

// Session exists while a replica of a service is alive. The service must not be "node". Written
// by the replica.
func Session(service, replica string) Key[cluster.Session] {
	return Key[cluster.Session]{Root + "sessions/" + service + "/" + replica}
}

// Sessions are the sessions of one service.
func Sessions(service string) Prefix[cluster.Session] {
	return Prefix[cluster.Session]{Root + "sessions/" + service + "/"}
}

// Shard is which replica owns a shard of a service's groups or sources. Written by the replicas
// of that service.
func Shard(service string, shard int) Key[cluster.Shard] {
	return Key[cluster.Shard]{Root + "shards/" + service + "/" + strconv.Itoa(shard)}
}

// Shards are the shards of one service.
func Shards(service string) Prefix[cluster.Shard] {
	return Prefix[cluster.Shard]{Root + "shards/" + service + "/"}
}

// AllShards are the shards of all services.
func AllShards() Prefix[cluster.Shard] { return Prefix[cluster.Shard]{Root + "shards/"} }

// ConfigVersion is one version of the settings that all gateways share. Numbers are padded, so
// that keys are in the order of versions. Written by the gateway.
func ConfigVersion(version int64) Key[cluster.ConfigVersion] {
	return Key[cluster.ConfigVersion]{Root + "config/" + fmt.Sprintf("%012d", version)}
}

// ConfigActive is which version of the settings is active. Written by the gateway.
func ConfigActive() Key[cluster.ConfigActive] {
	return Key[cluster.ConfigActive]{Root + "config-active/cluster"}
}

// Maintenance is the maintenance of all groups at once. Written by the gateway.
func Maintenance() Key[cluster.Maintenance] {
	return Key[cluster.Maintenance]{Root + "maintenance/cluster"}
}

// Notice says which events a gateway sends where. Written by the gateway.
func Notice(name string) Key[notice.Notice] { return Key[notice.Notice]{Root + "notices/" + name} }

// Notices are all notices.
func Notices() Prefix[notice.Notice] { return Prefix[notice.Notice]{Root + "notices/"} }

// NoticeState is how far the deliveries of a notice are, and which gateway makes them. Written by the
// gateway.
func NoticeState(name string) Key[notice.State] {
	return Key[notice.State]{Root + "notice-states/" + name}
}

// Applied is the last document that a declarative client applied for an object. It is removed with the
// object. Written by the gateway.
func Applied(kind applied.Kind, name string) Key[applied.Record] {
	return Key[applied.Record]{Root + "applied/" + string(kind) + "/" + name}
}

// EgressUpgrade marks that the hosts of sources from before the allow list are on it. Written
// by the gateway once.
func EgressUpgrade() Key[cluster.EgressUpgrade] {
	return Key[cluster.EgressUpgrade]{Root + "egress-upgrade/cluster"}
}
