package wire_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

func TestCallSendsAndReceivesJSON(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			N int `json:"n"`
		}
		if err := wire.DecodeJSON(r.Body, 0, &in); err != nil {
			wire.Encode(w, wire.V1, "r", err)
			return
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			wire.Encode(w, wire.V1, "r", errs.New(errs.Unauthenticated, "no token"))
			return
		}
		_, _ = w.Write([]byte(`{"n":2}`))
	}))
	defer s.Close()
	var out struct {
		N int `json:"n"`
	}
	r := wire.Request{Method: http.MethodPost, URL: s.URL, Token: "secret", Body: map[string]int{"n": 1}}
	if err := wire.Call(t.Context(), s.Client(), r, &out); err != nil || out.N != 2 {
		t.Errorf("n=%d, %v", out.N, err)
	}
	r.Token = "other"
	if err := wire.Call(t.Context(), s.Client(), r, &out); !errs.Is(err, errs.Unauthenticated) {
		t.Errorf("err = %v, want Unauthenticated", err)
	}
}

func TestCallWithoutAnAnswer(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	r := wire.Request{Method: http.MethodGet, URL: s.URL}
	if err := wire.Call(t.Context(), s.Client(), r, nil); !errs.Is(err, errs.Unavailable) {
		t.Errorf("a server that is gone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := wire.Call(ctx, s.Client(), r, nil); !errs.Is(err, errs.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
}
