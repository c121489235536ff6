package wire

import (
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Guard refuses calls that do not present the cluster secret as a bearer token, in the Internal
// dialect. An empty secret refuses every call.
func Guard(secret string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || secret == "" || subtle.ConstantTimeCompare([]byte(token), []byte(secret)) != 1 {
			Encode(w, Internal, "", errs.New(errs.Unauthenticated, "this call needs the cluster secret"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
