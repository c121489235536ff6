package server

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
)

const headerIdempotencyKey = "Idempotency-Key"

// Asked returns the author of a template change, with the idempotency name of the request and the
// fingerprint of the body read so far.
func Asked(c *gin.Context) client.Asked {
	by := client.Asked{Author: Actor(c).User, Owner: Actor(c).ID, Operation: operation(c), Shown: Shown(c)}
	if body, ok := c.Request.Body.(*fingerprinted); ok {
		by.Request = body.sum()
	}
	return by
}

// fingerprinted is a body that computes an HMAC while it is read. It is keyed with the cluster
// secret, because the body may contain values that readers of the store must not be able to guess.
type fingerprinted struct {
	io.ReadCloser
	mac hash.Hash
	// whole is true if the body was already read completely and is read again.
	whole bool
}

// sum returns the fingerprint of the part read so far.
func (f *fingerprinted) sum() string { return hex.EncodeToString(f.mac.Sum(nil)) }

// Read reads and updates the fingerprint.
func (f *fingerprinted) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if !f.whole {
		f.mac.Write(p[:n])
	}
	return n, err
}

// fingerprint computes a fingerprint of the body of a request with an Idempotency-Key. The result of
// a request cannot be compared instead: encrypted values, for example, differ each time. Raw bodies
// are excluded: their receiver compares the content.
func (s *Server) fingerprint(c *gin.Context) {
	if c.GetHeader(headerIdempotencyKey) == "" || s.routeOf(c).Body.Raw {
		return
	}
	mac := hmac.New(sha256.New, []byte("idempotency\x00"+s.cfg.Secret))
	c.Request.Body = &fingerprinted{ReadCloser: c.Request.Body, mac: mac}
}

// operation returns the name under which a request is remembered: the same for a retry, and different
// for each caller (by ID), API token, method, path and query, ignoring dryRun. API tokens are
// separate because they may see less than their user. The name starts with the owner. Empty
// without an Idempotency-Key.
func operation(c *gin.Context) string {
	key := c.GetHeader(headerIdempotencyKey)
	if key == "" {
		return ""
	}
	query := c.Request.URL.Query()
	query.Del("dryRun")
	by := Actor(c)
	owner := cmp.Or(by.ID, by.User)
	sum := sha256.Sum256([]byte(strings.Join([]string{owner, by.TokenID, c.Request.Method, c.Request.URL.Path, query.Encode(), key}, "\x00")))
	return store.OwnedName(owner, hex.EncodeToString(sum[:16]))
}
