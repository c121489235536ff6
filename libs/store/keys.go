package store

import (
	"strconv"
	"strings"

	"github.com/orreryhq/orrery/libs/fleet"
)

// Root is the prefix of all keys. Values are JSON.
const Root = "/orrery/v1/"

// Schema is the version of the key layout this build reads and writes.
const Schema = 1

// Key is the place of one record of type T.
type Key[T any] struct{ path string }

// String is the full key.
func (k Key[T]) String() string { return k.path }

// Prefix is the place of all records of type T of one kind (or part of them).
type Prefix[T any] struct{ path string }

// String is the full prefix, ending in a slash.
func (p Prefix[T]) String() string { return p.path }

// The builders below are the key table of the design, in one place.

func MetaKey() Key[fleet.Meta] { return Key[fleet.Meta]{Root + "meta/schema"} }

// SecretFingerprintKey is written by the first program that joins the cluster.
func SecretFingerprintKey() Key[fleet.SecretFingerprint] {
	return Key[fleet.SecretFingerprint]{Root + "meta/secret"}
}

func GroupKey(g fleet.GroupName) Key[fleet.Group] {
	return Key[fleet.Group]{Root + "groups/" + string(g)}
}
func Groups() Prefix[fleet.Group] { return Prefix[fleet.Group]{Root + "groups/"} }

func IntentKey(id fleet.InstanceID) Key[fleet.Intent] {
	return Key[fleet.Intent]{Root + "instances/" + string(id)}
}
func Intents() Prefix[fleet.Intent] { return Prefix[fleet.Intent]{Root + "instances/"} }

// NameClaim is the record under a name key: which instance holds the ordinal.
type NameClaim struct {
	fleet.Rev
	ID fleet.InstanceID `json:"id"`
}

func NameKey(g fleet.GroupName, ordinal int) Key[NameClaim] {
	return Key[NameClaim]{Root + "names/" + string(g) + "/" + strconv.Itoa(ordinal)}
}

func PlanKey(digest string) Key[fleet.StoredPlan] {
	return Key[fleet.StoredPlan]{Root + "plans/" + digest}
}

func PlacementKey(n fleet.NodeID, id fleet.InstanceID) Key[fleet.Placement] {
	return Key[fleet.Placement]{Root + "placements/" + string(n) + "/" + string(id)}
}

// PlacementsOn are the placements of one node: all its agent needs to watch, with OrdersOn.
func PlacementsOn(n fleet.NodeID) Prefix[fleet.Placement] {
	return Prefix[fleet.Placement]{Root + "placements/" + string(n) + "/"}
}

func OrderKey(n fleet.NodeID, id fleet.InstanceID) Key[fleet.Order] {
	return Key[fleet.Order]{Root + "orders/" + string(n) + "/" + string(id)}
}

func OrdersOn(n fleet.NodeID) Prefix[fleet.Order] {
	return Prefix[fleet.Order]{Root + "orders/" + string(n) + "/"}
}

func PendingKey(id fleet.InstanceID) Key[fleet.Pending] {
	return Key[fleet.Pending]{Root + "pending/" + string(id)}
}

func AllocKey(n fleet.NodeID) Key[fleet.Alloc] {
	return Key[fleet.Alloc]{Root + "allocs/" + string(n)}
}

func QuotaKey(name string) Key[fleet.Quota] { return Key[fleet.Quota]{Root + "quotas/" + name} }

func QuotaAllocKey(name string) Key[fleet.QuotaAlloc] {
	return Key[fleet.QuotaAlloc]{Root + "quota-allocs/" + name}
}

func EvictionKey(id fleet.InstanceID) Key[fleet.Eviction] {
	return Key[fleet.Eviction]{Root + "evictions/" + string(id)}
}

func StatusKey(id fleet.InstanceID) Key[fleet.Status] {
	return Key[fleet.Status]{Root + "status/" + string(id)}
}

func NodeKey(n fleet.NodeID) Key[fleet.Node] { return Key[fleet.Node]{Root + "nodes/" + string(n)} }

func NodeDesiredKey(n fleet.NodeID) Key[fleet.NodeDesired] {
	return Key[fleet.NodeDesired]{Root + "nodes-desired/" + string(n)}
}

func NodeSessionKey(n fleet.NodeID) Key[fleet.NodeSession] {
	return Key[fleet.NodeSession]{Root + "sessions/node/" + string(n)}
}

// NodeSessions are the sessions of all nodes whose agents live.
func NodeSessions() Prefix[fleet.NodeSession] {
	return Prefix[fleet.NodeSession]{Root + "sessions/node/"}
}

// SessionKey is a service replica's liveness. The service name must not be "node".
func SessionKey(service, replica string) Key[fleet.Session] {
	return Key[fleet.Session]{Root + "sessions/" + service + "/" + replica}
}

func Sessions(service string) Prefix[fleet.Session] {
	return Prefix[fleet.Session]{Root + "sessions/" + service + "/"}
}

func ShardKey(service string, shard int) Key[fleet.Shard] {
	return Key[fleet.Shard]{Root + "shards/" + service + "/" + strconv.Itoa(shard)}
}

func Shards(service string) Prefix[fleet.Shard] {
	return Prefix[fleet.Shard]{Root + "shards/" + service + "/"}
}

// AllShards are those of all services.
func AllShards() Prefix[fleet.Shard] { return Prefix[fleet.Shard]{Root + "shards/"} }

func ReportKey(n fleet.NodeID) Key[fleet.Report] {
	return Key[fleet.Report]{Root + "reports/" + string(n)}
}

func TemplateHeadKey(t fleet.TemplateRef) Key[fleet.TemplateHead] {
	return Key[fleet.TemplateHead]{Root + "template-heads/" + t.Group + "/" + t.Name}
}

func TemplateHeads() Prefix[fleet.TemplateHead] {
	return Prefix[fleet.TemplateHead]{Root + "template-heads/"}
}

func TemplateVersionKey(t fleet.TemplateRef, digest string) Key[fleet.TemplateVersion] {
	return Key[fleet.TemplateVersion]{Root + "template-versions/" + t.Group + "/" + t.Name + "/" + digest}
}

func TemplateVersions(t fleet.TemplateRef) Prefix[fleet.TemplateVersion] {
	return Prefix[fleet.TemplateVersion]{Root + "template-versions/" + t.Group + "/" + t.Name + "/"}
}

// TemplateSourceKey is written by the gateway, TemplateSourceStatusKey by the replica
// of templatesvc that owns the source's shard.
func TemplateSourceKey(name string) Key[fleet.TemplateSource] {
	return Key[fleet.TemplateSource]{Root + "template-sources/" + name}
}

func TemplateSources() Prefix[fleet.TemplateSource] {
	return Prefix[fleet.TemplateSource]{Root + "template-sources/"}
}

func TemplateSourceStatusKey(name string) Key[fleet.SourceStatus] {
	return Key[fleet.SourceStatus]{Root + "template-source-status/" + name}
}

func TemplateSourceStatuses() Prefix[fleet.SourceStatus] {
	return Prefix[fleet.SourceStatus]{Root + "template-source-status/"}
}

// TemplateDirectoryKey is written by the replica itself, and removed by another when it
// has no session; DirectorySyncKey by the gateway.
func TemplateDirectoryKey(replica string) Key[fleet.TemplateDirectory] {
	return Key[fleet.TemplateDirectory]{Root + "template-directories/" + replica}
}

func TemplateDirectories() Prefix[fleet.TemplateDirectory] {
	return Prefix[fleet.TemplateDirectory]{Root + "template-directories/"}
}

// DirectoryMemoryKey is written by the replica itself. When that has no session, another
// one may take it over, and after a week any removes it.
func DirectoryMemoryKey(id, replica string) Key[fleet.DirectoryMemory] {
	return Key[fleet.DirectoryMemory]{DirectoryMemoriesOf(id).path + replica}
}

// DirectoryMemoriesOf are what replicas remember of one directory and its copies.
func DirectoryMemoriesOf(id string) Prefix[fleet.DirectoryMemory] {
	return Prefix[fleet.DirectoryMemory]{DirectoryMemories().path + id + "/"}
}

func DirectoryMemories() Prefix[fleet.DirectoryMemory] {
	return Prefix[fleet.DirectoryMemory]{Root + "template-directory-memory/"}
}

func DirectorySyncKey() Key[fleet.DirectorySync] {
	return Key[fleet.DirectorySync]{Root + "template-directory-sync"}
}

// DeclaredGroupKey is written by the owner of the source, DeclaredStatusKey by the gateway.
func DeclaredGroupKey(source string, g fleet.GroupName) Key[fleet.DeclaredGroup] {
	return Key[fleet.DeclaredGroup]{Root + "declared-groups/" + source + "/" + string(g)}
}

func DeclaredGroups() Prefix[fleet.DeclaredGroup] {
	return Prefix[fleet.DeclaredGroup]{Root + "declared-groups/"}
}

// DeclaredGroupsOf are those of one source.
func DeclaredGroupsOf(source string) Prefix[fleet.DeclaredGroup] {
	return Prefix[fleet.DeclaredGroup]{Root + "declared-groups/" + source + "/"}
}

func DeclaredStatusKey(source string, g fleet.GroupName) Key[fleet.DeclaredStatus] {
	return Key[fleet.DeclaredStatus]{Root + "declared-status/" + source + "/" + string(g)}
}

func DeclaredStatuses() Prefix[fleet.DeclaredStatus] {
	return Prefix[fleet.DeclaredStatus]{Root + "declared-status/"}
}

// DeclaredCatalogKey is written by the owner of the source, DeclaredCatalogStatusKey by
// the gateway. The name is that of fleet.DeclaredCatalog.
func DeclaredCatalogKey(source, name string) Key[fleet.DeclaredCatalog] {
	return Key[fleet.DeclaredCatalog]{Root + "declared-catalog/" + source + "/" + name}
}

func DeclaredCatalog() Prefix[fleet.DeclaredCatalog] {
	return Prefix[fleet.DeclaredCatalog]{Root + "declared-catalog/"}
}

// DeclaredCatalogOf are those of one source.
func DeclaredCatalogOf(source string) Prefix[fleet.DeclaredCatalog] {
	return Prefix[fleet.DeclaredCatalog]{Root + "declared-catalog/" + source + "/"}
}

func DeclaredCatalogStatusKey(source, name string) Key[fleet.DeclaredStatus] {
	return Key[fleet.DeclaredStatus]{Root + "declared-catalog-status/" + source + "/" + name}
}

func DeclaredCatalogStatuses() Prefix[fleet.DeclaredStatus] {
	return Prefix[fleet.DeclaredStatus]{Root + "declared-catalog-status/"}
}

func CrashLoopKey(g fleet.GroupName) Key[fleet.CrashLoop] {
	return Key[fleet.CrashLoop]{Root + "crashloops/" + string(g)}
}

// CrashKey and CrashTailKey are created in one transaction, so that both records have
// the same revision.
func CrashKey(id string) Key[fleet.Crash] { return Key[fleet.Crash]{Root + "crashes/" + id} }
func Crashes() Prefix[fleet.Crash]        { return Prefix[fleet.Crash]{Root + "crashes/"} }

func CrashTailKey(id string) Key[fleet.CrashTail] {
	return Key[fleet.CrashTail]{Root + "crash-tails/" + id}
}

func UserKey(name string) Key[fleet.User] { return Key[fleet.User]{Root + "users/" + name} }
func Users() Prefix[fleet.User]           { return Prefix[fleet.User]{Root + "users/"} }

// PreferencesKey is of a user, by fleet.User.ID.
func PreferencesKey(userID string) Key[fleet.Preferences] {
	return Key[fleet.Preferences]{Root + "preferences/" + userID}
}

func PlayerLinkKey(id fleet.PlayerID) Key[fleet.PlayerLink] {
	return Key[fleet.PlayerLink]{Root + "minecraft/" + string(id)}
}

func RoleKey(name string) Key[fleet.Role] { return Key[fleet.Role]{Root + "roles/" + name} }

// RoleMarkKey is the mark of a role, by its name.
func RoleMarkKey(name string) Key[fleet.RoleMark] {
	return Key[fleet.RoleMark]{Root + "role-marks/" + name}
}

// RevocationKey is of a login, by its id.
func RevocationKey(login string) Key[fleet.Revocation] {
	return Key[fleet.Revocation]{Root + "revocations/" + login}
}

// LockoutKey is of a user name, by the SHA-256 of it in lower case, hex.
func LockoutKey(hash string) Key[fleet.Lockout] {
	return Key[fleet.Lockout]{Root + "lockouts/" + hash}
}

// LoginKey is of a login, by its id.
func LoginKey(id string) Key[fleet.Login] { return Key[fleet.Login]{Root + "logins/" + id} }

// KnownNetworksKey is of a user by fleet.User.ID, or of an API token by its id.
func KnownNetworksKey(id string) Key[fleet.KnownNetworks] {
	return Key[fleet.KnownNetworks]{Root + "known-networks/" + id}
}

// ResetKey is of a user, by an id that follows from the name.
func ResetKey(id string) Key[fleet.Reset] { return Key[fleet.Reset]{Root + "resets/" + id} }

func APITokenKey(id string) Key[fleet.APIToken] {
	return Key[fleet.APIToken]{Root + "tokens/" + id}
}

func SealedKeyKey(id string) Key[fleet.SealedKey] {
	return Key[fleet.SealedKey]{Root + "pki/" + id}
}

func SecretKey(name string) Key[fleet.Secret] { return Key[fleet.Secret]{Root + "secrets/" + name} }
func Secrets() Prefix[fleet.Secret]           { return Prefix[fleet.Secret]{Root + "secrets/"} }

func AuditKey(ulid string) Key[fleet.AuditEntry] {
	return Key[fleet.AuditEntry]{Root + "audit/" + ulid}
}
func AuditLog() Prefix[fleet.AuditEntry] { return Prefix[fleet.AuditEntry]{Root + "audit/"} }

// TicketKey is a single-use stream ticket, by the SHA-256 of its text, hex.
func TicketKey(hash string) Key[fleet.Ticket] {
	return Key[fleet.Ticket]{Root + "tickets/" + hash}
}
func Tickets() Prefix[fleet.Ticket] { return Prefix[fleet.Ticket]{Root + "tickets/"} }

// SplitKey cuts a full key into its kind and the segments after it. ok is false
// for keys outside Root.
func SplitKey(key string) (kind string, rest []string, ok bool) {
	tail, ok := strings.CutPrefix(key, Root)
	if !ok {
		return "", nil, false
	}
	parts := strings.Split(tail, "/")
	return parts[0], parts[1:], true
}
