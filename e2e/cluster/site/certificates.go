package site

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/libs/pki"
)

// certified is how long the certificates of a site are valid.
const certified = 24 * time.Hour

// Certify writes a new bundle for a service and returns its path, the value of trust.file. That of an agent is
// of the authority of nodes if the agents of the site use etcd through gateways.
func (s *Site) Certify(who pki.Identity) (string, error) {
	now := time.Now()
	if s.authority == nil {
		if err := s.makeAuthorities(now); err != nil {
			return "", err
		}
	}
	by := s.authority
	if who.Service == pki.Agent && s.o.Certificates {
		by = s.nodeAuthority
	}
	p, err := by.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: now, Until: now.Add(certified)})
	if err != nil {
		return "", err
	}
	path := s.path("pki", strings.ReplaceAll(who.Path(), "/", "-")+".pem")
	return path, os.WriteFile(path, pki.NewBundle(p, s.authority.Pair().Cert, s.nodeAuthority.Pair().Cert), 0o600)
}

// certifyEtcd returns the settings by which etcd uses TLS; none without Wrap.
func (s *Site) certifyEtcd() ([]string, error) {
	if s.o.Wrap == nil {
		return nil, nil
	}
	now := time.Now()
	if s.authority == nil {
		if err := s.makeAuthorities(now); err != nil {
			return nil, err
		}
	}
	p, err := s.authority.Issue(pki.Request{
		Name: pki.Etcd, Identity: pki.Identity{Service: pki.Etcd}, Hosts: []string{"127.0.0.1"}, Server: true, Client: true, Now: now, Until: now.Add(certified),
	})
	if err != nil {
		return nil, err
	}
	cert, key, ca := s.path("pki", "etcd.crt"), s.path("pki", "etcd.key"), s.path("pki", "authority.crt")
	err = errors.Join(os.WriteFile(cert, p.Cert, 0o600), os.WriteFile(key, p.Key, 0o600), os.WriteFile(ca, s.authority.Pair().Cert, 0o600))
	return []string{"-cert", cert, "-key", key, "-ca", ca}, err
}

// etcdScheme is that of the URLs of etcd's members.
func (s *Site) etcdScheme() string {
	if s.o.Wrap != nil {
		return "https://"
	}
	return "http://"
}

func (s *Site) makeAuthorities(now time.Time) (err error) {
	if s.authority, err = pki.NewAuthority("site", now, now.Add(certified)); err != nil {
		return err
	}
	if s.nodeAuthority, err = pki.NewNodeAuthority("site nodes", now, now.Add(certified)); err != nil {
		return err
	}
	if err := os.MkdirAll(s.path("pki"), 0o700); err != nil {
		return err
	}
	services, nodes := s.authority.Pair(), s.nodeAuthority.Pair()
	return errors.Join(
		os.WriteFile(s.servicesFile(), slices.Concat(services.Cert, services.Key), 0o600),
		os.WriteFile(s.nodesFile(), slices.Concat(nodes.Cert, nodes.Key), 0o600),
	)
}

// servicesFile has the authority of services.
func (s *Site) servicesFile() string { return s.path("pki", "authority.pem") }

// nodesFile has the authority of nodes.
func (s *Site) nodesFile() string { return s.path("pki", "nodes.pem") }

// trust returns the settings of a service about certificates.
func (s *Site) trust(service, name string) ([]string, error) {
	if !s.o.Certificates {
		return nil, nil
	}
	path, err := s.Certify(pki.Identity{Service: service, Name: name})
	return []string{"--trust-file", path}, err
}

// serveNodes returns the settings of a service that serves nodes.
func (s *Site) serveNodes(name string) ([]string, error) {
	if !s.o.Certificates {
		return nil, nil
	}
	at, err := Address()
	if err != nil {
		return nil, err
	}
	s.forNodes[name] = at
	return []string{"--nodes-listen", at}, nil
}

// Agent returns the settings by which the agent of a node takes part, from inside its namespace if it has one:
// through gateways if the site has certificates, and otherwise with etcd itself.
func (s *Site) Agent(id string, space *Namespace) ([]string, error) {
	if !s.o.Certificates {
		args, err := s.common(pki.Agent, id, space)
		return append(args, "--seal-key-file", s.SealKeyFile()), err
	}
	var urls []string
	for _, name := range slices.Sorted(maps.Keys(s.forNodes)) {
		at, err := s.connect(Pair{id, name}, space, "127.0.0.1:0", dialer(s.forNodes[name]))
		if err != nil {
			return nil, err
		}
		urls = append(urls, "https://"+at)
	}
	trust, err := s.trust(pki.Agent, id)
	return append([]string{"--gateways", strings.Join(urls, ","), "--log-level", "debug"}, append(trust, s.ttl()...)...), err
}

func (s *Site) ttl() []string {
	if s.o.TTL <= 0 {
		return nil
	}
	return []string{"--session-ttl", s.o.TTL.String()}
}

// scheme is that of the URLs of the services.
func (s *Site) scheme() string {
	if s.o.Certificates {
		return "https://"
	}
	return "http://"
}
