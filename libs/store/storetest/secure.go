package storetest

import (
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TLS are the files of an etcd that requires certificates, in PEM. Authority must not have a key.
type TLS struct{ Cert, Key, Authority string }

func (s TLS) scheme() string {
	if s == (TLS{}) {
		return "http"
	}
	return "https"
}

func (s TLS) info() transport.TLSInfo {
	return transport.TLSInfo{CertFile: s.Cert, KeyFile: s.Key, TrustedCAFile: s.Authority, ClientCertAuth: s != TLS{}}
}

// StartSecure runs an etcd that requires certificates until the test ends.
func StartSecure(t testing.TB, files TLS) *Etcd {
	t.Helper()
	return start(t, &Etcd{tls: files})
}

// RequireLogin makes etcd refuse clients that do not log in. The user root may do everything. Methods of
// Etcd that use the raw client fail from here on.
func (e *Etcd) RequireLogin(t testing.TB, password string) {
	t.Helper()
	ctx, c := t.Context(), e.inner
	for _, step := range []func() error{
		func() error { _, err := c.RoleAdd(ctx, "root"); return err },
		func() error {
			_, err := c.UserAddWithOptions(ctx, "root", password, new(clientv3.UserAddOptions))
			return err
		},
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Fatalf("requiring a login: %v", err)
		}
	}
}
