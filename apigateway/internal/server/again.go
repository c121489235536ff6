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

// Asked is who asks for a change of a template, by what name it is made once, and what is
// asked for under that name, as far as the body was read.
func Asked(c *gin.Context) client.Asked {
	by := client.Asked{Author: Actor(c).User, Owner: Actor(c).ID, Operation: operation(c), Shown: Shown(c)}
	if body, ok := c.Request.Body.(*fingerprinted); ok {
		by.Request = body.sum()
	}
	return by
}

// fingerprinted is a body that is told from others, to nobody who lacks the cluster secret:
// it may hold values that are kept from whoever reads the store.
type fingerprinted struct {
	io.ReadCloser
	mac hash.Hash
	// whole is true when all of it was read once already, and is read again.
	whole bool
}

// sum is what it is told by, as far as it was read.
func (f *fingerprinted) sum() string { return hex.EncodeToString(f.mac.Sum(nil)) }

// Read reads on.
func (f *fingerprinted) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if !f.whole {
		f.mac.Write(p[:n])
	}
	return n, err
}

// fingerprint has the body of a request with an Idempotency-Key told from others: what is
// made of it, such as what is sealed, may be another each time. What is passed on as it
// comes is not: there the content counts, which its receiver knows.
func (s *Server) fingerprint(c *gin.Context) {
	if c.GetHeader(headerIdempotencyKey) == "" || s.routeOf(c).Body.Raw {
		return
	}
	mac := hmac.New(sha256.New, []byte("idempotency\x00"+s.cfg.Secret))
	c.Request.Body = &fingerprinted{ReadCloser: c.Request.Body, mac: mac}
}

// operation names what a request asks for by its Idempotency-Key: the same for one that
// is sent again, another for each caller, whatever they are called, and each API token, which may be told less than
// its user, method, path and query, dryRun aside. It tells whose it is. Empty without a key.
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
