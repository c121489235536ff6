// Package accountops changes users, roles, API tokens and logins. It locks out names after wrong
// passwords and resets passwords.
package accountops

import (
	"context"
	"time"

	"golang.org/x/time/rate"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/seal"
)

// Deps are what Accounts need besides the Committer.
type Deps struct {
	// Settings returns the current settings.
	Settings func() settings.Settings
	// Seal seals the secrets of second factors, see fleet.SecretsKind.
	Seal seal.Box
	// TellReset sends a user a password reset token. Nil disables password resets.
	TellReset func(ctx context.Context, u account.User, token string) error
	// Pause delays a password check after earlier wrong passwords. It reports false if ctx ended first.
	// Nil means pause.For.
	Pause func(ctx context.Context, d time.Duration) bool
}

// Accounts changes users, roles, logins and API tokens. It is safe for concurrent use.
type Accounts struct {
	*txn.Committer
	deps Deps
	// Leases shared by the records of each kind.
	revocations, lockouts, logins, networks txn.SharedLease
	// refused has the wrong passwords that were audited recently.
	refused *txn.Recent
	// refusals limits how many wrong passwords are audited.
	refusals *rate.Limiter
}

// New returns the operations on accounts.
func New(c *txn.Committer, d Deps) *Accounts {
	if d.Pause == nil {
		d.Pause = pause.For
	}
	return &Accounts{
		Committer: c, deps: d,
		revocations: txn.SharedLease{Together: revocationsTogether}, lockouts: txn.SharedLease{Together: lockoutsTogether},
		logins: txn.SharedLease{Together: loginsTogether}, networks: txn.SharedLease{Together: networksTogether},
		refused: txn.NewRecent(), refusals: rate.NewLimiter(rate.Every(refusalEvery), refusalBurst),
	}
}
