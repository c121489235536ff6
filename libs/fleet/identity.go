package fleet

import (
	"net/netip"
	"strconv"
	"time"
)

// Permission is the right to do one kind of thing, "<what>.<verb>". The gateway knows
// which there are.
type Permission string

// Role is a set of permissions that users are given by its name. The gateway writes it. A
// role that is built in has a record only when its permissions were changed.
type Role struct {
	Rev
	Name        string       `json:"name"` // upper case
	Permissions []Permission `json:"permissions"`
	// Edition is the PermissionEdition in which Permissions were chosen; 0 in records of
	// earlier versions.
	Edition int       `json:"edition,omitempty"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// PermissionEdition counts how often a permission was split into finer ones. Edition 1 split
// instances.files, templates.content and groups.env from permissions that only look.
const PermissionEdition = 1

// RoleMark is moved by each write that gives somebody a role, so that none is deleted that
// was given at the same moment. The gateway writes it.
type RoleMark struct{ Rev }

// Blank is how a damaged record is read: as the mark it is.
func (m *RoleMark) Blank() { *m = RoleMark{} }

// User is somebody who may log in. The gateway writes it.
type User struct {
	Rev
	Username string `json:"username"` // lower case
	// Email is where a forgotten password is reset to; may be empty.
	Email string `json:"email,omitempty"`
	// PasswordHash is an argon2id hash in PHC form.
	PasswordHash string `json:"passwordHash"`
	Role         string `json:"role"`
	// Epoch is raised to make all earlier tokens of the user worthless.
	Epoch     int64     `json:"epoch"`
	CreatedAt time.Time `json:"createdAt"`
	// MinecraftUUID is the player of the game that the user is, MinecraftName how that one is
	// called there; empty when they did not say.
	MinecraftUUID PlayerID `json:"minecraftUuid,omitempty"`
	MinecraftName string   `json:"minecraftName,omitempty"`
	Avatar        Avatar   `json:"avatar,omitzero"`
}

// ID names a user in letters and digits, whatever they are called: nobody who is given the
// name of another later has the same.
func (u *User) ID() string {
	return strconv.FormatInt(u.CreatedAt.UnixNano(), 36)
}

// APIToken is a long-lived credential; only its hash is kept. The gateway writes it.
type APIToken struct {
	Rev
	ID   string `json:"id"`
	Name string `json:"name"`
	// Hash is the SHA-256 of the token, hex.
	Hash string `json:"hash"`
	User string `json:"user"`
	// UserID is User.ID of that user: somebody else who is called so later is not it. Empty
	// in records of earlier versions.
	UserID string `json:"userId,omitempty"`
	// Scopes are what of the user's permissions the token has; all of them when empty.
	Scopes []Permission `json:"scopes,omitempty"`
	// Edition is the PermissionEdition in which Scopes were chosen; 0 in records of earlier versions.
	Edition int `json:"edition,omitempty"`
	// Public is true when the token only reads, and may be used so often only.
	Public bool `json:"public,omitempty"`
	// LastUsedAt is when the token was used, to an hour; zero when it was not.
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"`
	// ExpiresAt is zero when the token does not expire.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	CreatedAt time.Time `json:"createdAt"`
}

// Belongs reports whether a token is a user's, and not of another who was called so.
func (t *APIToken) Belongs(u *User) bool {
	return t.User == u.Username && (t.UserID == "" || t.UserID == u.ID())
}

// Revocation ends one login before its time, with all tokens that were made of its first. Its
// key goes when the last of them would have expired. The gateway writes it.
type Revocation struct {
	Rev
	User string    `json:"user"`
	At   time.Time `json:"at"`
}

// Lockout counts wrong passwords for a user name, whether there is a user of that name or
// not. Its key is the SHA-256 of the name in lower case, hex, so that nobody reads there what
// was typed instead of a name; it goes when nothing in it counts any more. The gateway writes it.
type Lockout struct {
	Rev
	// LockoutCount counts all networks together that are not among the user's KnownNetworks.
	// Records of earlier versions have nothing else, and count every network in it.
	LockoutCount
	// Networks counts each network by itself. At most MaxLockoutNetworks are kept.
	Networks map[string]LockoutCount `json:"networks,omitempty"`
}

// LockoutCount counts wrong passwords from somewhere.
type LockoutCount struct {
	// Failures are the times of the wrong passwords that still count, the oldest first.
	Failures []time.Time `json:"failures,omitempty"`
	// Until is when passwords are looked at again; zero while they are not locked out.
	Until time.Time `json:"until,omitzero"`
}

// MaxLockoutNetworks bounds Lockout.Networks.
const MaxLockoutNetworks = 64

// KnownNetworks are the networks from which a user signed in, or used a login or an API token,
// by their form of NetworkOf, each with its last use to a day. Its key is User.ID or the id of
// the API token. The gateway writes it on a lease.
type KnownNetworks struct {
	Rev
	Networks map[string]time.Time `json:"networks"`
}

const (
	// MaxKnownNetworks bounds KnownNetworks.Networks; a new one replaces the least recently used.
	MaxKnownNetworks = 32
	// KnownNetworkLife is how long an unused network stays known.
	KnownNetworkLife = 90 * 24 * time.Hour
)

// NetworkOf names the network that an address belongs to: of IPv4 the address itself, of IPv6
// the /64, since one host has all of it.
func NetworkOf(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // an IPv6 address has one
	return p.String()
}

// Reset lets whoever has its token give a user another password, once. Only the token's hash
// is kept, and the key goes when the token expires. The gateway writes it.
type Reset struct {
	Rev
	User string `json:"user"`
	// Epoch is the user's when it was asked for: with another password it is worthless.
	Epoch int64 `json:"epoch"`
	// Hash is the SHA-256 of the token, hex.
	Hash string    `json:"hash"`
	At   time.Time `json:"at"`
}

// Credential is what somebody proved who they are with, as far as it is needed to see later
// whether it still holds. It proves nothing by itself.
type Credential struct {
	User string `json:"user"`
	// TokenID is an API token's. Empty for the token of a login, which Login and Epoch are of.
	TokenID string `json:"tokenId,omitempty"`
	Login   string `json:"login,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`
	// Instance is set, and User is not, when an instance sent a token of its own; Root and
	// Generation are OwnToken's.
	Instance   InstanceID `json:"instance,omitempty"`
	Root       string     `json:"root,omitempty"`
	Generation int64      `json:"generation,omitempty"`
	// Until is when it expires; zero when it does not.
	Until time.Time `json:"until,omitzero"`
}

// Ticket opens one stream once, for clients that cannot send headers. Only its
// hash is kept, in the key, and the key goes when the ticket expires. The gateway
// writes it.
type Ticket struct {
	Rev
	// Credential is what it was asked for with: neither the ticket nor what it opens
	// outlives that.
	Credential
	// Stream names what the ticket opens, e.g. "events".
	Stream string `json:"stream"`
	// Consoles is true when a ticket for events opens consoles too, since its user may
	// see them; Typing when its user may also type into the console it opens.
	Consoles bool `json:"consoles,omitempty"`
	Typing   bool `json:"typing,omitempty"`
}

// SealedKey is a secret encrypted under the cluster secret. The gateway writes it.
type SealedKey struct {
	Rev
	ID     string `json:"id"`
	Sealed []byte `json:"sealed"`
	// Previous is the one before, which is good still; empty when there is none.
	Previous  []byte    `json:"previous,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// LoginsSince is when a gateway that bounds the life of logins first used the key: logins of
	// earlier versions count from then. Zero before that.
	LoginsSince time.Time `json:"loginsSince,omitzero"`
}

// Meta identifies the cluster and the layout of its keys.
type Meta struct {
	Rev
	Schema    int       `json:"schema"`
	ClusterID string    `json:"clusterId"`
	CreatedAt time.Time `json:"createdAt"`
}

// SecretFingerprint tells whether a secret is the cluster's, without revealing it.
type SecretFingerprint struct {
	Rev
	Salt []byte `json:"salt"`
	// Hash is the argon2id hash of the secret with the salt.
	Hash []byte `json:"hash"`
}
