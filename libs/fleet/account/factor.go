package account

import (
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Factor is the second factor of a user: an authenticator that computes codes from a secret and
// the time (TOTP, RFC 6238). Its key is User.ID. The gateway writes it.
type Factor struct {
	record.Rev
	// Sealed is the secret that the authenticator shares, sealed for the user.
	Sealed []byte `json:"sealed"`
	// BeganAt is when the user began to enrol.
	BeganAt time.Time `json:"beganAt"`
	// ConfirmedAt is when the user proved to have the authenticator. Until then it is zero, and a
	// login needs no code.
	ConfirmedAt time.Time `json:"confirmedAt,omitzero"`
	// Step is the time step of the last accepted code. Codes of this step and of earlier ones are
	// refused, so each code is accepted once.
	Step int64 `json:"step,omitempty"`
	// Recovery has the SHA-256 of each unused recovery code, in hex.
	Recovery []string `json:"recovery,omitempty"`
}

// AboutFactor returns the subject for which the factor of a user is sealed.
func AboutFactor(userID string) string { return "second factor " + userID }

// Confirmed reports whether a login needs a code. f may be nil.
func (f *Factor) Confirmed() bool { return f != nil && !f.ConfirmedAt.IsZero() }
