// Package peer serves the endpoints that gateways use among themselves. They are on the address of
// the API and require the cluster secret. Without it, a request is passed on to the API. Requests
// of other gateways bypass the API with its rate limits and allowed subnets.
package peer

import (
	"crypto/subtle"
	"net/http"
)

// Endpoint handles one kind of request of other gateways.
type Endpoint struct {
	Method, Path string
	Handle       http.HandlerFunc
}

// Handler serves requests with the cluster secret at the endpoints and passes all others to next.
func Handler(next http.Handler, secret string, endpoints ...Endpoint) http.Handler {
	want, handlers := []byte("Bearer "+secret), make(map[[2]string]http.HandlerFunc, len(endpoints))
	for _, e := range endpoints {
		handlers[[2]string{e.Method, e.Path}] = e.Handle
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle := handlers[[2]string{r.Method, r.URL.Path}]
		if handle == nil || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), want) != 1 {
			next.ServeHTTP(w, r)
			return
		}
		handle(w, r)
	})
}
