package upstream

import (
	"context"
	"net/http"
)

// HeaderCorrelation has the ID that connects the logs of all services for one request.
const HeaderCorrelation = "X-Correlation-Id"

type correlationKey struct{}

// Correlate sets the correlation ID of calls with the context.
func Correlate(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, correlationKey{}, id)
}

// Correlated adds the correlation ID to calls; see Correlate.
func Correlated(next http.RoundTripper) http.RoundTripper { return correlated{next} }

type correlated struct{ next http.RoundTripper }

// RoundTrip sends a call.
func (c correlated) RoundTrip(r *http.Request) (*http.Response, error) {
	if id, ok := r.Context().Value(correlationKey{}).(string); ok && id != "" {
		r = r.Clone(r.Context()) // a RoundTripper must not modify the request
		r.Header.Set(HeaderCorrelation, id)
	}
	return c.next.RoundTrip(r)
}
