package server

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/gin-gonic/gin"
)

// Operation names what a request asks for by its Idempotency-Key: the same for one that
// is sent again, another for each caller, method, path and query, dryRun aside. Empty
// without a key.
func Operation(c *gin.Context) string {
	key := c.GetHeader("Idempotency-Key")
	if key == "" {
		return ""
	}
	query := c.Request.URL.Query()
	query.Del("dryRun")
	sum := sha256.Sum256([]byte(strings.Join([]string{Actor(c).User, c.Request.Method, c.Request.URL.Path, query.Encode(), key}, "\x00")))
	return hex.EncodeToString(sum[:16])
}
