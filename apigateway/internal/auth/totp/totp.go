// Package totp decides about second factors: codes that an authenticator computes from a shared
// secret and the time (HOTP, RFC 4226, and TOTP, RFC 6238), and recovery codes. It has no I/O.
package totp

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/account"
)

const (
	// Period is how long a code is shown, and Digits its length. Both are what authenticators assume.
	Period = 30 * time.Second
	Digits = 6
	// skew is how many steps a clock may be ahead or behind.
	skew = 1
	// secretBytes is the length of a secret, that of SHA-1's output, as RFC 4226 recommends.
	secretBytes = 20
	// RecoveryCodes is how many recovery codes a user gets.
	RecoveryCodes = 10
	// recoveryLength is the length of a recovery code without dashes: 80 bits in base 32.
	recoveryLength = 16
	// EnrolTime is how long a begun enrolment can be confirmed.
	EnrolTime = 15 * time.Minute
)

// NewSecret returns a random secret.
func NewSecret() []byte {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // never fails
	return secret
}

// Text returns a secret as a user types it into an authenticator.
func Text(secret []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
}

// URI returns the address that authenticators read from a QR code.
func URI(issuer, user string, secret []byte) string {
	query := url.Values{
		"secret": {Text(secret)}, "issuer": {issuer}, "algorithm": {"SHA1"}, "digits": {fmt.Sprint(Digits)}, "period": {fmt.Sprint(int(Period / time.Second))},
	}
	// Authenticators do not read + as a space.
	return "otpauth://totp/" + url.PathEscape(issuer+":"+user) + "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
}

// Step returns the time step of a moment.
func Step(now time.Time) int64 { return now.Unix() / int64(Period/time.Second) }

// Code returns the code of a counter. For TOTP the counter is the time step.
func Code(secret []byte, counter int64) string { return hotp(secret, uint64(counter), Digits) }

// hotp is the algorithm of RFC 4226, section 5.3.
func hotp(secret []byte, counter uint64, digits int) string {
	mac := hmac.New(sha1.New, secret)
	_ = binary.Write(mac, binary.BigEndian, counter) // never fails
	sum := mac.Sum(nil)
	offset := sum[len(sum)-1] & 0x0f
	number := binary.BigEndian.Uint32(sum[offset:]) & 0x7fffffff
	modulus := uint32(1)
	for range digits {
		modulus *= 10
	}
	return fmt.Sprintf("%0*d", digits, number%modulus)
}

// accepted returns the step of a code that is valid now and later than the last accepted step.
func accepted(secret []byte, code string, last int64, now time.Time) (step int64, ok bool) {
	for step := Step(now) - skew; step <= Step(now)+skew; step++ {
		if step > last && subtle.ConstantTimeCompare([]byte(Code(secret, step)), []byte(code)) == 1 {
			return step, true
		}
	}
	return 0, false
}

// NewRecoveryCodes returns recovery codes, and the hashes to store.
func NewRecoveryCodes() (codes, hashes []string) {
	for range RecoveryCodes {
		text := rand.Text()[:recoveryLength]
		codes = append(codes, text[:4]+"-"+text[4:8]+"-"+text[8:12]+"-"+text[12:])
		hashes = append(hashes, hashOf(text))
	}
	return codes, hashes
}

// hashOf returns the hash of a recovery code. A fast hash is enough for 80 random bits.
func hashOf(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// normalized returns a code as users mean it: without the spaces and dashes of its groups, in upper case.
func normalized(code string) string {
	return strings.ToUpper(strings.NewReplacer(" ", "", "-", "").Replace(code))
}

// Verdict is the decision about a login or a code.
type Verdict int

// The verdicts.
const (
	// NotAsked: the user has no confirmed factor.
	NotAsked Verdict = iota
	// Missing: a code is needed and none was sent.
	Missing
	// Wrong: the code is wrong, has expired, or was used before.
	Wrong
	// Accepted: the code is right.
	Accepted
	// Recovered: the code is an unused recovery code.
	Recovered
)

// Check decides about the code of a user who has proved the password. f is nil for a user without a
// factor; otherwise secret is its opened secret. When the verdict is Accepted or Recovered, next must
// replace f: it does not accept the code again.
func Check(f *account.Factor, secret []byte, code string, now time.Time) (next account.Factor, v Verdict) {
	if !f.Confirmed() {
		return next, NotAsked
	}
	next = *f
	code = normalized(code)
	if code == "" {
		return next, Missing
	}
	if len(code) == recoveryLength {
		hash := hashOf(code)
		if !slices.Contains(f.Recovery, hash) {
			return next, Wrong
		}
		next.Recovery = slices.DeleteFunc(slices.Clone(f.Recovery), func(h string) bool { return h == hash })
		return next, Recovered
	}
	step, ok := accepted(secret, code, f.Step, now)
	if !ok {
		return next, Wrong
	}
	next.Step = step
	return next, Accepted
}

// Confirmation is the decision about the code that ends an enrolment.
type Confirmation int

// The confirmations.
const (
	// Confirms: the code is right.
	Confirms Confirmation = iota
	// NotBegun: there is no enrolment, or it began too long ago.
	NotBegun
	// Already: the factor is confirmed.
	Already
	// WrongCode: the code is wrong.
	WrongCode
)

// Confirm decides about the code that ends an enrolment. f and secret are as in Check. When the answer
// is Confirms, next must replace f; the caller adds the hashes of recovery codes.
func Confirm(f *account.Factor, secret []byte, code string, now time.Time) (next account.Factor, c Confirmation) {
	switch {
	case f.Confirmed():
		return next, Already
	case f == nil || !now.Before(f.BeganAt.Add(EnrolTime)):
		return next, NotBegun
	}
	step, ok := accepted(secret, normalized(code), f.Step, now)
	if !ok {
		return next, WrongCode
	}
	next = *f
	next.ConfirmedAt, next.Step = now, step
	return next, Confirms
}
