package stack

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/orreryhq/orrery/apigateway"
	"github.com/orreryhq/orrery/libs/atomicfile"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/trust"
)

// trustDir is the directory of the authorities and certificates in the data directory.
const trustDir = "trust"

const nodesFlag = "-nodes-listen"

// openStack is what a stack with Options.NodesListen has: certificates for its services, and a client
// that nodes share. A nil openStack is that of a stack without other nodes.
type openStack struct {
	o             Options
	dir           string
	services      *pki.Authority
	nodeAuthority *pki.Authority
	client        *store.Client
	// address is the address for templates.
	address string
}

// openToNodes reads or makes the authorities. It returns nil without Options.NodesListen.
func openToNodes(o Options, db *etcd) (*openStack, error) {
	if o.NodesListen == "" {
		return nil, nil
	}
	s := &openStack{o: o, dir: filepath.Join(o.DataDir, trustDir)}
	host, port, err := net.SplitHostPort(o.NodesListen)
	n, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || n == 1<<16-1 {
		return nil, errs.Field(nodesFlag, "%q must be an address with a port, below 65535 because the next one serves templates, such as 10.0.0.1:7401", o.NodesListen)
	}
	if n > 0 {
		n++
	}
	s.address = net.JoinHostPort(host, strconv.FormatUint(n, 10))
	for _, address := range []string{o.NodesListen, s.address} {
		if _, err := freeAddress(address, nodesFlag); err != nil {
			return nil, err
		}
	}
	if err := privateDir(s.dir); err != nil {
		return nil, dirError(o.DataDir, err)
	}
	if s.services, err = s.authority("authority.pem", pki.NewAuthority); err != nil {
		return nil, err
	}
	if s.nodeAuthority, err = s.authority("nodes.pem", pki.NewNodeAuthority); err != nil {
		return nil, err
	}
	s.client, err = store.Dial([]string{db.Endpoint}, store.Options{Log: o.Log})
	return s, err
}

// authority reads an authority of the data directory, or makes it.
func (s *openStack) authority(name string, make func(string, time.Time, time.Time) (*pki.Authority, error)) (*pki.Authority, error) {
	path := filepath.Join(s.dir, name)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		now := s.o.Now()
		fresh, err := make("orrery "+name, now, now.AddDate(authorityYears, 0, 0))
		if err != nil {
			return nil, err
		}
		pair := fresh.Pair()
		return fresh, atomicfile.Write(path, slices.Concat(pair.Cert, pair.Key))
	}
	if err != nil {
		return nil, dirError(s.o.DataDir, err)
	}
	pair, err := pki.ParsePair(text)
	if err != nil {
		return nil, errs.New(errs.Invalid, "%s: %s", path, errs.MessageOf(err))
	}
	return pki.LoadAuthority(pair)
}

// peers returns how a service of the stack is authenticated: with certificates by a bundle that is issued at
// each start.
func (s *openStack) peers(of *stack, service string) (*trust.Peers, error) {
	if s == nil {
		return trust.BySecret(of.secret), nil
	}
	who, now := pki.Identity{Service: service}, s.o.Now()
	if service == pki.Agent {
		who.Name = string(s.o.Node)
	}
	pair, err := s.services.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: now, Until: s.services.Until()})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, service+".pem")
	if err := atomicfile.Write(path, pki.NewBundle(pair, s.services.Pair().Cert, s.nodeAuthority.Pair().Cert)); err != nil {
		return nil, dirError(s.o.DataDir, err)
	}
	c, err := trust.Open(path, s.o.Now, s.o.Log)
	if err != nil {
		return nil, err
	}
	return trust.ByCertificate(c), nil
}

// nodes are the gateway's settings about nodes.
func (s *openStack) nodes() apigateway.Nodes {
	if s == nil {
		return apigateway.Nodes{}
	}
	return apigateway.Nodes{Listen: s.o.NodesListen, Authority: filepath.Join(s.dir, "nodes.pem")}
}

// templates is the address at which templates are served; empty means the default.
func (s *openStack) templates() string {
	if s == nil {
		return ""
	}
	return s.address
}

// store is the client that nodes use; nil without other nodes.
func (s *openStack) store() *store.Client {
	if s == nil {
		return nil
	}
	return s.client
}

func (s *openStack) close() {
	if s != nil {
		_ = s.client.Close()
	}
}
