package program

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/trust"
)

const secureScheme = "https://"

// validateEtcd names the settings about the connection to etcd that do not fit together.
func (s *Settings) validateEtcd() (problems []error) {
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	e, secure := &s.Etcd, s.encrypted()
	mixed := slices.ContainsFunc(e.Endpoints, func(endpoint string) bool { return strings.HasPrefix(endpoint, secureScheme) != secure })
	check(!mixed, "etcd.endpoints", "must all begin with https://, or none")
	check(secure || e.CA == "", "etcd.ca", "needs etcd.endpoints that begin with https://")
	check(secure || e.Cert == "", "etcd.cert", "needs etcd.endpoints that begin with https://")
	check((e.Cert == "") == (e.Key == ""), "etcd.key", "and etcd.cert are a pair: set both or none")
	check(secure || e.Username == "", "etcd.username", "needs etcd.endpoints that begin with https://, because the password would be sent in clear")
	check((e.Username == "") == (e.Password == ""), "etcd.password", "and etcd.username are a pair: set both or none")
	return problems
}

// encrypted reports whether the connection to etcd is encrypted.
func (s *Settings) encrypted() bool {
	return len(s.Etcd.Endpoints) > 0 && strings.HasPrefix(s.Etcd.Endpoints[0], secureScheme)
}

func openPeers(s Spec, e Env) (*trust.Peers, error) {
	open, file := trust.Open, s.Common.Trust.File
	switch {
	case file == "":
		return trust.BySecret(s.Common.Cluster.Secret), nil
	case s.throughGateways(): // the agent renews its certificate
		open = trust.OpenRenewed
	}
	c, err := open(file, e.Now, e.Log)
	if err != nil {
		return nil, err
	}
	return trust.ByCertificate(c), nil
}

// throughGateways reports whether the service uses etcd through gateways.
func (s Spec) throughGateways() bool { return s.Gateways != nil && len(*s.Gateways) > 0 }

func dial(spec Spec, e Env) (*store.Client, error) {
	s := spec.Common
	if spec.throughGateways() {
		to := e.Peers.ClientTLS(pki.Identity{Service: pki.Gateway}, pki.Identity{Service: pki.Enforcer})
		return store.Dial(*spec.Gateways, store.Options{Log: e.Log, TLS: to})
	}
	o := store.Options{
		MaxOps: s.Etcd.MaxOps, Log: e.Log, Secret: s.Cluster.Secret, Username: s.Etcd.Username, Password: s.Etcd.Password,
	}
	if s.encrypted() {
		var err error
		if o.TLS, err = etcdTLS(s, e.Peers); err != nil {
			return nil, err
		}
	}
	return store.Dial(s.Etcd.Endpoints, o)
}

// etcdTLS returns the settings of encrypted connections to etcd. Files of own settings go before the bundle.
func etcdTLS(s *Settings, peers *trust.Peers) (*tls.Config, error) {
	out := peers.ClientTLS(pki.Identity{Service: pki.Etcd})
	if s.Etcd.CA != "" { // its certificate has the name of its host instead of an identity
		out.MinVersion, out.InsecureSkipVerify, out.VerifyConnection = tls.VersionTLS12, false, nil
		text, err := os.ReadFile(s.Etcd.CA)
		if err != nil {
			return nil, errs.Field("etcd.ca", "etcd.ca cannot be read: %v", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(text) {
			return nil, errs.Field("etcd.ca", "etcd.ca %s has no certificate in PEM", s.Etcd.CA)
		}
	}
	if s.Etcd.Cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.Etcd.Cert, s.Etcd.Key)
			if err != nil {
				return nil, errs.Field("etcd.cert", "etcd.cert %s and etcd.key %s cannot be used: %v", s.Etcd.Cert, s.Etcd.Key, err)
			}
			return &pair, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return out, nil
}
