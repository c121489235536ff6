package server

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/templatesvc/client"
)

// Asked is who asks for a change of a template, and by what name it is made once.
func Asked(c *gin.Context) client.Asked {
	return client.Asked{Author: Actor(c).User, Operation: operation(c), Shown: Shown(c)}
}

// operation names what a request asks for by its Idempotency-Key: the same for one that
// is sent again, another for each caller, method, path and query, dryRun aside. Empty
// without a key.
func operation(c *gin.Context) string {
	key := c.GetHeader("Idempotency-Key")
	if key == "" {
		return ""
	}
	query := c.Request.URL.Query()
	query.Del("dryRun")
	sum := sha256.Sum256([]byte(strings.Join([]string{Actor(c).User, c.Request.Method, c.Request.URL.Path, query.Encode(), key}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
