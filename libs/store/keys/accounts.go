package keys

import (
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/players"
)

// The keys of users, their logins, and the records of their actions.

// User is a user account. Written by the gateway.
func User(name string) Key[account.User] { return Key[account.User]{Root + "users/" + name} }

// Users are all users.
func Users() Prefix[account.User] { return Prefix[account.User]{Root + "users/"} }

// Preferences holds the settings of a user's pages. The ID stays the same when the user is
// renamed. No view holds it. Written by the gateway.
func Preferences(userID string) Key[account.Preferences] {
	return Key[account.Preferences]{Root + "preferences/" + userID}
}

// PlayerLink links a player to a user. Written by the gateway.
func PlayerLink(player players.PlayerID) Key[account.PlayerLink] {
	return Key[account.PlayerLink]{Root + "minecraft/" + string(player)}
}

// Role is a custom role, or a built-in role with changed permissions. Written by the gateway.
func Role(name string) Key[account.Role] { return Key[account.Role]{Root + "roles/" + name} }

// Binding gives a role to users in the groups that a label selector matches. Written by the
// gateway.
func Binding(name string) Key[account.Binding] {
	return Key[account.Binding]{Root + "bindings/" + name}
}

// RoleMark is touched when a user or a binding is given a role. The deletion of the role compares it.
// Written by the gateway.
func RoleMark(name string) Key[account.RoleMark] {
	return Key[account.RoleMark]{Root + "role-marks/" + name}
}

// Login is a sign-in and the number of its newest refresh token. It has a lease of 30 days.
// Without the record the login is still valid. Written by the gateway.
func Login(id string) Key[account.Login] { return Key[account.Login]{Root + "logins/" + id} }

// Revocation ends a login. Its lease lasts until the login's last token expires. Written by the
// gateway.
func Revocation(login string) Key[account.Revocation] {
	return Key[account.Revocation]{Root + "revocations/" + login}
}

// Lockout counts recent wrong passwords for a user name, which is hashed with SHA-256 in lower
// case. Its lease ends with the last entry. Written by the gateway.
func Lockout(hash string) Key[account.Lockout] {
	return Key[account.Lockout]{Root + "lockouts/" + hash}
}

// KnownNetworks holds the networks that a user or API token was used from. It has a lease of 90
// days. Written by the gateway.
func KnownNetworks(id string) Key[account.KnownNetworks] {
	return Key[account.KnownNetworks]{Root + "known-networks/" + id}
}

// Factor is a user's second factor: the sealed secret of an authenticator and the hashes of unused
// recovery codes. The ID stays the same when the user is renamed. Written by the gateway.
func Factor(userID string) Key[account.Factor] {
	return Key[account.Factor]{Root + "second-factors/" + userID}
}

// Factors are the second factors of all users.
func Factors() Prefix[account.Factor] { return Prefix[account.Factor]{Root + "second-factors/"} }

// Reset is the hash of a token that resets a user's password once. Its lease is the token's
// life. Written by the gateway.
func Reset(id string) Key[account.Reset] { return Key[account.Reset]{Root + "resets/" + id} }

// APIToken is an API token. Written by the gateway.
func APIToken(id string) Key[account.APIToken] { return Key[account.APIToken]{Root + "tokens/" + id} }

// Keyring has the keys that seal secrets, wrapped. No view holds it. Written by the gateway.
func Keyring() Key[account.Keyring] { return Key[account.Keyring]{Root + "meta/keyring"} }

// SealedKey is a signing key, sealed. Written by the gateway.
func SealedKey(id string) Key[account.SealedKey] { return Key[account.SealedKey]{Root + "pki/" + id} }

// SealedKeys are all signing keys.
func SealedKeys() Prefix[account.SealedKey] { return Prefix[account.SealedKey]{Root + "pki/"} }

// Ticket is a single-use ticket for a stream, by the SHA-256 of its text. Written by the
// gateway.
func Ticket(hash string) Key[account.Ticket] { return Key[account.Ticket]{Root + "tickets/" + hash} }

// Tickets are all tickets.
func Tickets() Prefix[account.Ticket] { return Prefix[account.Ticket]{Root + "tickets/"} }

// Audit is an entry of the audit log, with the values before and after. Written by the gateway
// in the transaction of the change.
func Audit(ulid string) Key[account.AuditEntry] {
	return Key[account.AuditEntry]{Root + "audit/" + ulid}
}

// AuditLog are all entries of the audit log.
func AuditLog() Prefix[account.AuditEntry] { return Prefix[account.AuditEntry]{Root + "audit/"} }

// Share is a text that a user shares by a link. No view holds it. Written by the gateway
// together with ShareText.
func Share(id string) Key[account.Share] { return Key[account.Share]{Root + "shares/" + id} }

// Shares are all shares.
func Shares() Prefix[account.Share] { return Prefix[account.Share]{Root + "shares/"} }

// ShareText is the text of a share. It is removed when the share has ended. Written by the
// gateway.
func ShareText(id string) Key[account.ShareText] {
	return Key[account.ShareText]{Root + "share-texts/" + id}
}

// ShareTextMark is the key of ShareText for callers that need only its revision.
func ShareTextMark(id string) Key[account.ShareTextMark] {
	return Key[account.ShareTextMark]{Root + "share-texts/" + id}
}

// Operation remembers a request with an Idempotency-Key and its sealed answer for a day. No
// view holds it. Written by the gateway.
func Operation(id string) Key[cluster.Operation] {
	return Key[cluster.Operation]{Root + "operations/" + id}
}

// Operations are all remembered requests.
func Operations() Prefix[cluster.Operation] { return Prefix[cluster.Operation]{Root + "operations/"} }
