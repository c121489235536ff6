package site

import (
	"os"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/pki"
)

// certified is how long the certificates of a site are valid.
const certified = 24 * time.Hour

// Certify writes a new bundle for a service and returns its path, the value of trust.file.
func (s *Site) Certify(who pki.Identity) (string, error) {
	now := time.Now()
	if s.authority == nil {
		a, err := pki.NewAuthority("site", now, now.Add(certified))
		if err != nil {
			return "", err
		}
		if err := os.MkdirAll(s.path("pki"), 0o700); err != nil {
			return "", err
		}
		s.authority = a
	}
	p, err := s.authority.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: now, Until: now.Add(certified)})
	if err != nil {
		return "", err
	}
	path := s.path("pki", strings.ReplaceAll(who.Path(), "/", "-")+".pem")
	return path, os.WriteFile(path, pki.NewBundle(p, s.authority.Pair().Cert), 0o600)
}

// trust returns the settings of a service about certificates.
func (s *Site) trust(service, name string) ([]string, error) {
	if !s.o.Certificates {
		return nil, nil
	}
	path, err := s.Certify(pki.Identity{Service: service, Name: name})
	return []string{"--trust-file", path}, err
}

// scheme is that of the URLs of the services.
func (s *Site) scheme() string {
	if s.o.Certificates {
		return "https://"
	}
	return "http://"
}
