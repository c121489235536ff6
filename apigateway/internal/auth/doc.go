// Package auth says who makes a request and what that one may do.
//
// Somebody proves who they are with a password (once, for a short-lived token), a
// token of a login, or an API token; an instance with its own token. What is kept
// of each is a hash, so that who reads the store can log in as nobody.
//
// Invariants:
//
//   - A token is judged by the user as the view knows it now: a deleted user's, and
//     one older than the user's epoch, is worthless at once, on every replica. So is
//     the role in a token: rights follow from the user's present role, and that from
//     the role's present permissions. A login that was ended is worthless in the same way.
//   - A wrong password and an unknown user look alike, in words and in time.
//   - All replicas sign with one random key and accept the one before. Both stand in the
//     store encrypted under the cluster secret, and each replica has them from its view.
//   - First records are create-only: replicas that start together agree.
//
// The package knows no HTTP, limits no rates and locks nobody out: package operate counts
// wrong passwords.
package auth
