// Package peer is where gateways answer each other: at paths of the address that each serves
// the API at, for who has the cluster secret. Others find nothing there. A request of another
// gateway never reaches the API, so neither its limits nor the subnets that clients come from
// are about it.
package peer

import (
	"crypto/subtle"
	"net/http"
)

// Door is one thing that gateways ask of each other, or tell each other.
type Door struct {
	Method, Path string
	Open         http.HandlerFunc
}

// Before opens doors to who has the cluster secret, and leaves everything else to a handler.
func Before(next http.Handler, secret string, doors ...Door) http.Handler {
	want, opens := []byte("Bearer "+secret), make(map[[2]string]http.HandlerFunc, len(doors))
	for _, d := range doors {
		opens[[2]string{d.Method, d.Path}] = d.Open
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := opens[[2]string{r.Method, r.URL.Path}]
		if open == nil || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			next.ServeHTTP(w, r)
			return
		}
		open(w, r)
	})
}
