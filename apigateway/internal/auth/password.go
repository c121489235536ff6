package auth

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"

	"github.com/orreryhq/orrery/libs/errs"
)

// Cost is the cost of hashing a password with argon2id. The zero value means OWASP's second
// recommended setting.
type Cost struct{ MemoryKiB, Passes uint32 }

// orDefault returns the cost, with the default for the zero value.
func (c Cost) orDefault() Cost {
	if c == (Cost{}) {
		return Cost{MemoryKiB: 19 * 1024, Passes: 2}
	}
	return c
}

const (
	argonThreads  = 1
	argonKeyBytes = 32
	saltBytes     = 16
	// maxPassword limits the length of a password, in bytes, because hashing is expensive.
	maxPassword = 1024
)

// maxWaiting limits the passwords that wait to be hashed; that is a few seconds of work.
const maxWaiting = 64

// hasher hashes a few passwords at a time, because each needs 19 MiB, with a bounded queue.
type hasher struct {
	cost           Cost
	slots, waiting chan struct{}
}

func newHasher(parallel, waiting int, cost Cost) hasher {
	return hasher{cost: cost.orDefault(), slots: make(chan struct{}, max(1, parallel)), waiting: make(chan struct{}, waiting)}
}

// dummy is the hash that an unknown user's password is compared with, so that the response takes as
// long as for a known user. No password matches it: its key is all zero.
func (h hasher) dummy() string {
	return h.encode(make([]byte, saltBytes), make([]byte, argonKeyBytes))
}

// encode returns a hash in PHC format.
func (h hasher) encode(salt, key []byte) string {
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, h.cost.MemoryKiB, h.cost.Passes, argonThreads, enc.EncodeToString(salt), enc.EncodeToString(key))
}

// acquire waits for a slot. It returns Unavailable if too many callers wait already.
func (h hasher) acquire(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return errs.New(errs.Unavailable, "too many passwords are being checked now: retry in a moment")
	}
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap("auth.hash", ctx.Err())
	}
}

func (h hasher) release() { <-h.slots }

// hash returns the password's argon2id hash in PHC format.
func (h hasher) hash(ctx context.Context, password string) (string, error) {
	if err := h.acquire(ctx); err != nil {
		return "", err
	}
	defer h.release()
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	return h.encode(salt, argon2.IDKey([]byte(password), salt, h.cost.Passes, h.cost.MemoryKiB, argonThreads, argonKeyBytes)), nil
}

// verify reports whether the password matches the hash.
func (h hasher) verify(ctx context.Context, password, phc string) (bool, error) {
	p, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	if len(password) > maxPassword {
		return false, nil
	}
	if err := h.acquire(ctx); err != nil {
		return false, err
	}
	defer h.release()
	got := argon2.IDKey([]byte(password), p.salt, p.time, p.memory, p.threads, uint32(len(p.key)))
	return subtle.ConstantTimeCompare(got, p.key) == 1, nil
}

// outdated reports whether a hash has other parameters than hash uses now.
func (h hasher) outdated(stored string) bool {
	p, err := parsePHC(stored)
	return err == nil && (p.memory != h.cost.MemoryKiB || p.time != h.cost.Passes || p.threads != argonThreads || len(p.key) != argonKeyBytes)
}

type phc struct {
	memory, time uint32
	threads      uint8
	salt, key    []byte
}

// parsePHC parses a stored hash. The limits protect against damaged records that would need all memory.
func parsePHC(s string) (phc, error) {
	broken := func() (phc, error) {
		return phc{}, errs.New(errs.Internal, "a stored password hash is not readable")
	}
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return broken()
	}
	var (
		p       phc
		version int
	)
	if _, err := fmt.Sscanf(parts[2], "v=%d", &version); err != nil || version != argon2.Version {
		return broken()
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.time, &p.threads); err != nil {
		return broken()
	}
	if p.memory == 0 || p.memory > 1<<20 || p.time == 0 || p.time > 16 || p.threads == 0 {
		return broken()
	}
	var err error
	if p.salt, err = base64.RawStdEncoding.DecodeString(parts[4]); err != nil || len(p.salt) < 8 {
		return broken()
	}
	if p.key, err = base64.RawStdEncoding.DecodeString(parts[5]); err != nil || len(p.key) < 16 || len(p.key) > 128 {
		return broken()
	}
	return p, nil
}
