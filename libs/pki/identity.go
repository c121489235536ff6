package pki

import (
	"crypto/x509"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// Identity is the holder of a certificate: a service, and the name that tells it from others of its
// service. Certificates contain it as a URI, spiffe://orrery/SERVICE or spiffe://orrery/SERVICE/NAME
// (https://github.com/spiffe/spiffe/blob/main/standards/SPIFFE-ID.md).
type Identity struct {
	// Service is one of Services.
	Service string
	// Name is the node's id for an agent. It is optional for the other services.
	Name string
}

// The services that get certificates.
const (
	Gateway   = "apigateway"
	Scheduler = "scheduler"
	Enforcer  = "enforcer"
	Agent     = "nodeagent"
	Templates = "templatesvc"
	Etcd      = "etcd"
)

// Services returns the services that get certificates.
func Services() []string { return []string{Gateway, Scheduler, Enforcer, Agent, Templates, Etcd} }

const trustDomain = "orrery"

// namePattern excludes what a URI's path would need escapes for.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Validate returns Invalid if a certificate cannot contain the identity.
func (i Identity) Validate() error {
	switch {
	case !slices.Contains(Services(), i.Service):
		return errs.New(errs.Invalid, "%q is not a service that gets certificates: use one of %s", i.Service, strings.Join(Services(), ", "))
	case i.Name == "" && i.Service == Agent:
		return errs.New(errs.Invalid, "the certificate of a nodeagent needs the id of its node")
	case i.Name != "" && !namePattern.MatchString(i.Name):
		return errs.New(errs.Invalid, "%q cannot be a name in a certificate: use letters, digits, dots, hyphens and underscores", i.Name)
	}
	return nil
}

// Path is the identity as people write it: SERVICE or SERVICE/NAME.
func (i Identity) Path() string {
	if i.Name == "" {
		return i.Service
	}
	return i.Service + "/" + i.Name
}

// String is the identity's URI.
func (i Identity) String() string { return i.uri().String() }

func (i Identity) uri() *url.URL {
	return &url.URL{Scheme: "spiffe", Host: trustDomain, Path: "/" + i.Path()}
}

// Includes reports whether other is i, or one of its service if i has no name.
func (i Identity) Includes(other Identity) bool {
	return i.Service == other.Service && (i.Name == "" || i.Name == other.Name)
}

// IdentityOf reads the identity of a certificate. Invalid if it has none of this cluster.
func IdentityOf(cert *x509.Certificate) (Identity, error) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != "spiffe" || cert.URIs[0].Host != trustDomain {
		return Identity{}, errs.New(errs.Invalid, "the certificate %q names no service: issue one with orrery pki issue", cert.Subject.CommonName)
	}
	service, name, _ := strings.Cut(strings.TrimPrefix(cert.URIs[0].Path, "/"), "/")
	i := Identity{Service: service, Name: name}
	return i, i.Validate()
}
