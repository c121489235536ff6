package upstream

import (
	"context"
	"net/http"
)

// HeaderCorrelation has the id by which what was done for one request is found in the logs
// of all services.
const HeaderCorrelation = "X-Correlation-Id"

type correlationKey struct{}

// Correlate has calls on behalf of the context carry an id.
func Correlate(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, correlationKey{}, id)
}

// Correlated sends calls as next does, with the id of what they are for; see Correlate.
func Correlated(next http.RoundTripper) http.RoundTripper { return correlated{next} }

type correlated struct{ next http.RoundTripper }

// RoundTrip sends a call.
func (c correlated) RoundTrip(r *http.Request) (*http.Response, error) {
	if id, ok := r.Context().Value(correlationKey{}).(string); ok && id != "" {
		r = r.Clone(r.Context()) // what was given is not to be changed
		r.Header.Set(HeaderCorrelation, id)
	}
	return c.next.RoundTrip(r)
}
