package account

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/players"
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Permission is the right to do one kind of thing, "<what>.<verb>". The gateway defines the
// permissions.
type Permission string

// Role is a named set of permissions. The gateway writes it. A built-in role has a record only if
// its permissions were changed.
type Role struct {
	record.Rev
	Name        string       `json:"name"` // upper case
	Permissions []Permission `json:"permissions"`
	// Edition is the PermissionEdition in which Permissions were chosen. It is 0 in records of
	// earlier versions.
	Edition int       `json:"edition,omitempty"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
}

// PermissionEdition counts how often a permission was split into finer ones. Edition 1 split
// instances.files, templates.content and groups.env from read-only permissions.
const PermissionEdition = 1

// RoleMark changes with each write that assigns a role to a user or a binding. A transaction that deletes a role compares
// it, so a role assigned at the same moment is not deleted. The gateway writes it.
type RoleMark struct{ record.Rev }

// Blank replaces a damaged record with the zero mark.
func (m *RoleMark) Blank() { *m = RoleMark{} }

// User is a person who may log in, or the account of a program. The gateway writes it.
type User struct {
	record.Rev
	Username string `json:"username"` // lower case
	// Email receives password resets. It may be empty.
	Email string `json:"email,omitempty"`
	// PasswordHash is an argon2id hash in PHC form. It is empty if the user is not Local.
	PasswordHash string `json:"passwordHash"`
	// Issuer is the URL of the login provider that the user comes from, and Subject the user's ID
	// there. Both are empty for local users.
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	// Service marks the account of a program, a service account. It has no password and cannot log in.
	Service bool   `json:"service,omitempty"`
	Role    string `json:"role"`
	// Epoch is increased to invalidate all earlier tokens of the user.
	Epoch     int64     `json:"epoch"`
	CreatedAt time.Time `json:"createdAt"`
	// MinecraftUUID is the user's player ID and MinecraftName the player's name. Both are empty
	// for users who have not linked a player.
	MinecraftUUID players.PlayerID `json:"minecraftUuid,omitempty"`
	MinecraftName string           `json:"minecraftName,omitempty"`
	Avatar        Avatar           `json:"avatar,omitzero"`
}

// ID returns an identifier of letters and digits. It stays the same for the life of the account,
// and another account that later gets the same name has another ID.
func (u *User) ID() string {
	return strconv.FormatInt(u.CreatedAt.UnixNano(), 36)
}

// Local reports whether the user logs in with a password.
func (u *User) Local() bool { return u.Issuer == "" && !u.Service }

// APIToken is a long-lived credential. Only its hash is stored. The gateway writes it.
type APIToken struct {
	record.Rev
	ID   string `json:"id"`
	Name string `json:"name"`
	// Hash is the SHA-256 of the token, in hex.
	Hash string `json:"hash"`
	User string `json:"user"`
	// UserID is the User.ID of that user, so a later user of the same name does not own the token.
	// It is empty in records of earlier versions.
	UserID string `json:"userId,omitempty"`
	// Scopes are the permissions of the user that the token has. Empty means all of them.
	Scopes []Permission `json:"scopes,omitempty"`
	// Edition is the PermissionEdition in which Scopes were chosen. It is 0 in records of earlier
	// versions.
	Edition int `json:"edition,omitempty"`
	// Public marks a read-only token with a rate limit.
	Public bool `json:"public,omitempty"`
	// LastUsedAt is when the token was last used, to an hour. Zero means never.
	LastUsedAt time.Time `json:"lastUsedAt,omitzero"`
	// ExpiresAt is zero if the token does not expire.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	CreatedAt time.Time `json:"createdAt"`
}

// Belongs reports whether the token belongs to u, and not to an earlier user of the same name.
func (t *APIToken) Belongs(u *User) bool {
	return t.User == u.Username && (t.UserID == "" || t.UserID == u.ID())
}

// Revocation ends a login early, including all tokens refreshed from it. Its key expires with the
// last of those tokens. The gateway writes it.
type Revocation struct {
	record.Rev
	User string    `json:"user"`
	At   time.Time `json:"at"`
}

// Lockout counts wrong passwords for a user name, whether or not the user exists. Its key is the
// SHA-256 of the lower-case name in hex, because people sometimes type a password as the name. The
// record expires when nothing in it counts any more. The gateway writes it.
type Lockout struct {
	record.Rev
	// LockoutCount counts all networks together that are not among the user's KnownNetworks.
	// Records of earlier versions have only this count, which includes every network.
	LockoutCount
	// Networks counts each network separately. At most MaxLockoutNetworks are kept.
	Networks map[string]LockoutCount `json:"networks,omitempty"`
}

// LockoutCount counts wrong passwords.
type LockoutCount struct {
	// Failures are the times of the wrong passwords that still count, oldest first.
	Failures []time.Time `json:"failures,omitempty"`
	// Until is when the lockout ends. Zero means not locked out.
	Until time.Time `json:"until,omitzero"`
}

// MaxLockoutNetworks bounds Lockout.Networks.
const MaxLockoutNetworks = 64

// KnownNetworks maps the networks (see NetworkOf) from which a user logged in, or used a login or
// an API token, to the day of the last use. Its key is the User.ID or the ID of the API token. The
// gateway writes it with a lease.
type KnownNetworks struct {
	record.Rev
	Networks map[string]time.Time `json:"networks"`
}

const (
	// MaxKnownNetworks bounds KnownNetworks.Networks. A new network replaces the least recently
	// used one.
	MaxKnownNetworks = 32
	// KnownNetworkLife is how long an unused network stays known.
	KnownNetworkLife = 90 * 24 * time.Hour
)

// NetworkOf returns the network of an address: the address itself for IPv4, the /64 for IPv6,
// since one host usually has a whole /64.
func NetworkOf(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64) // never fails for an IPv6 address
	return p.String()
}

// Reset is a password reset. Its token can be used once to set a new password. Only the token's
// hash is stored, and the key expires with the token. The gateway writes it.
type Reset struct {
	record.Rev
	User string `json:"user"`
	// Epoch is the user's epoch at the request. A password change makes the reset invalid.
	Epoch int64 `json:"epoch"`
	// Hash is the SHA-256 of the token, in hex.
	Hash string    `json:"hash"`
	At   time.Time `json:"at"`
}

// Credential identifies the credential a client authenticated with, so that its validity can be
// checked again later. It proves nothing by itself.
type Credential struct {
	User string `json:"user"`
	// TokenID is the ID of an API token. It is empty for a login token, which sets Login and
	// Epoch.
	TokenID string `json:"tokenId,omitempty"`
	Login   string `json:"login,omitempty"`
	Epoch   int64  `json:"epoch,omitempty"`
	// Instance is set instead of User if an instance authenticated with its own token. Root and
	// Generation are as in OwnToken.
	Instance   fleet.InstanceID `json:"instance,omitempty"`
	Root       string           `json:"root,omitempty"`
	Generation int64            `json:"generation,omitempty"`
	// Until is when the credential expires. Zero means never.
	Until time.Time `json:"until,omitzero"`
}

// Ticket opens one stream once, for clients that cannot send headers. The key contains only its
// hash and expires with the ticket. The gateway writes it.
type Ticket struct {
	record.Rev
	// Credential is the credential that requested the ticket. Neither the ticket nor its stream
	// outlives it.
	Credential
	// Stream names the stream the ticket opens, e.g. "events".
	Stream string `json:"stream"`
	// Consoles is true if a ticket for events also opens consoles. Typing is true if the user may
	// also type into the console.
	Consoles bool `json:"consoles,omitempty"`
	Typing   bool `json:"typing,omitempty"`
}

// SigningKey is the ID of the key that signs login tokens, and the kind for which it is sealed.
const SigningKey = "jwt"

// SealedKey is a sealed signing key. The gateway writes it.
type SealedKey struct {
	record.Rev
	ID     string `json:"id"`
	Sealed []byte `json:"sealed"`
	// Previous is the previous key, which is still valid. It is empty for the first key.
	Previous  []byte    `json:"previous,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// LoginsSince is when a gateway that limits the lifetime of logins first used the key. The
	// lifetime of older logins counts from then. Zero before that.
	LoginsSince time.Time `json:"loginsSince,omitzero"`
}
