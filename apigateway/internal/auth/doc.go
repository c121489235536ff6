// Package auth authenticates callers and determines their permissions.
//
// A user authenticates with a password and perhaps a code (package totp), or at a login provider
// (package oidclogin), for a short-lived token; then with that token, or with an API token. An instance
// authenticates with its own token. Only hashes are stored, so the store does not reveal credentials.
//
// Invariants:
//
//   - A token is checked against the view's current user. Tokens of a deleted user, of an ended
//     login, or older than the user's epoch are invalid at once, on every replica. Permissions
//     come from the user's current role and its current permissions, not from the token.
//   - A wrong password and an unknown user give the same error and take the same time.
//   - All replicas sign with one random key and accept the previous one. Both are stored encrypted
//     with the cluster secret, and each replica reads them from its view.
//   - Initial records are created conditionally, so replicas that start together agree.
//
// The package does not know HTTP, rate limits or lockouts. Package ops counts wrong passwords.
package auth
