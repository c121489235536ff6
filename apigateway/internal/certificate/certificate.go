// Package certificate has the certificates with which the API is served over TLS: a pair of files that
// is followed, or certificates that an ACME authority issues. Gateways recognise each other by a
// certificate that they derive from the cluster secret.
package certificate

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/url"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
)

// Config says where certificates come from. The zero value means none: the API is served over HTTP.
type Config struct {
	Cert string `config:"cert" usage:"file with the API's certificate in PEM, with the intermediate ones after it; the API is then served over TLS, and a changed file is used for new connections"`
	Key  string `config:"key" usage:"file with the private key of tls.cert in PEM"`
	ACME ACME   `config:"acme"`
	// HSTS is how long browsers shall use only TLS for this host; 0 means that they are not told.
	HSTS time.Duration `config:"hsts" default:"8760h" usage:"how long browsers that saw the API over TLS use only TLS for this host, on all ports (Strict-Transport-Security); 0 tells them nothing"`
}

// ACME configures an authority that issues certificates automatically. It is used if there are Hosts.
type ACME struct {
	Hosts     []string `config:"hosts" usage:"names to get certificates for from an ACME authority, whose terms you accept by this; it must reach port 443 of each name, forwarded to listen"`
	Directory string   `config:"directory" default:"https://acme-v02.api.letsencrypt.org/directory" usage:"URL of the ACME authority"`
	Email     string   `config:"email" usage:"address for messages of the ACME authority; empty: none"`
	CA        string   `config:"ca" usage:"file in PEM with the authorities that sign the certificate of tls.acme.directory; empty: those of the host"`
	Cache     string   `config:"cache" default:"./acme" usage:"directory for the ACME account and the certificates"`
}

// On reports whether the API is served over TLS.
func (c Config) On() bool { return c.Cert != "" || c.Key != "" || len(c.ACME.Hosts) > 0 }

// Check returns the fields whose values cannot be used. It reads no files.
func (c Config) Check() (problems []error) {
	check := func(ok bool, field, message string) {
		if !ok {
			problems = append(problems, errs.Field(field, "%s", message))
		}
	}
	check(c.Cert == "" || c.Key != "", "tls.key", "must name the file with the private key of tls.cert")
	check(c.Key == "" || c.Cert != "", "tls.cert", "must name the file with the certificate of tls.key")
	check(c.HSTS >= 0, "tls.hsts", "must not be negative")
	if len(c.ACME.Hosts) == 0 {
		return problems
	}
	check(c.Cert == "" && c.Key == "", "tls.acme.hosts", "cannot be combined with tls.cert and tls.key: leave out one of them")
	for _, host := range c.ACME.Hosts {
		if err := checkHost(host); err != nil {
			problems = append(problems, err)
		}
	}
	u, err := url.Parse(c.ACME.Directory)
	check(err == nil && u.Scheme == "https" && u.Host != "", "tls.acme.directory", "must be an https:// URL")
	check(c.ACME.Cache != "", "tls.acme.cache", "must name a directory: without it every start would ask for new certificates, which authorities limit")
	return problems
}

// Source has the certificates of a gateway. It is safe for concurrent use.
type Source struct {
	from source
	peer *Peer
}

// source is where certificates come from.
type source interface {
	// get returns the certificate for a connection.
	get(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// run renews certificates until ctx ends.
	run(ctx context.Context)
	// expiry calls tell with the end of each certificate's validity.
	expiry(tell func(host string, until time.Time))
	// protocols are the ALPN protocols beside those of HTTP.
	protocols() []string
}

// New returns the certificates of a valid Config that is On. It returns Invalid, with the field, if a
// file cannot be used.
func New(c Config, peer *Peer, log *slog.Logger, now func() time.Time) (*Source, error) {
	var from source
	var err error
	if len(c.ACME.Hosts) > 0 {
		from, err = newIssued(c.ACME, log)
	} else {
		from, err = openFiles(c.Cert, c.Key, log, now)
	}
	if err != nil {
		return nil, err
	}
	return &Source{from: from, peer: peer}, nil
}

// Hosts returns the names and then the addresses that certificates are for. Wildcards are left out. It
// returns Invalid if a file cannot be used.
func (c Config) Hosts() ([]string, error) {
	if len(c.ACME.Hosts) > 0 {
		return c.ACME.Hosts, nil
	}
	pair, err := load(c.Cert, c.Key)
	if err != nil {
		return nil, err
	}
	return hostsOf(pair.pair.Leaf), nil
}

// TLS returns the configuration of the API's listener.
func (s *Source) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: append([]string{"h2", "http/1.1"}, s.from.protocols()...),
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if s.peer.asked(hello) {
				return &s.peer.own, nil
			}
			return s.from.get(hello)
		},
	}
}

// Run renews the certificates until ctx ends.
func (s *Source) Run(ctx context.Context) { s.from.run(ctx) }

// Expiry calls tell with the end of each certificate's validity.
func (s *Source) Expiry(tell func(host string, until time.Time)) { s.from.expiry(tell) }
