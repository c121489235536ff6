package enroll

import (
	"bytes"
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/wire"
)

// The paths of the calls.
const (
	JoinPath    = "/join"
	RenewPath   = "/renew"
	SecretsPath = "/secrets"
)

// JoinRequest is the body of a call of JoinPath.
type JoinRequest struct {
	// Node and Token are those of a Token, without its other fields.
	Node  fleet.NodeID `json:"node"`
	Token string       `json:"token"`
	// CSR is a pki.SigningRequest.
	CSR []byte `json:"csr"`
}

// Certificate is a signed certificate and what its holder shall trust, all in PEM.
type Certificate struct {
	Certificate []byte   `json:"certificate"`
	Authorities [][]byte `json:"authorities"`
}

// JoinAnswer is the answer to a JoinRequest.
type JoinAnswer struct {
	Certificate
	// Gateways are the URLs at which gateways serve nodes, APIURL that of the API for instances.
	Gateways []string `json:"gateways"`
	APIURL   string   `json:"apiUrl"`
}

// RenewRequest is the body of a call of RenewPath.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// SecretsRequest is the body of a call of SecretsPath.
type SecretsRequest struct {
	Instance fleet.InstanceID `json:"instance"`
	// Refs are the references of variables as the instance's placement has them.
	Refs map[string]string `json:"refs"`
}

// SecretsAnswer is the answer to a SecretsRequest.
type SecretsAnswer struct {
	Values map[string]string `json:"values"`
}

// callTimeout bounds one call, so that a gateway that hangs leaves time for another.
const callTimeout = 10 * time.Second

// Client calls gateways. It is safe for concurrent use.
type Client struct {
	gateways func() []string
	http     *http.Client
	// first is the index of the gateway to ask first. It moves on when that does not answer.
	first atomic.Int64
}

// NewClient returns a client of the gateways at the URLs that a function returns.
func NewClient(gateways func() []string, t http.RoundTripper) *Client {
	c := &Client{gateways: gateways, http: &http.Client{Transport: t}}
	c.first.Store(rand.Int64N(maxFirst))
	return c
}

// maxFirst is more than there are gateways.
const maxFirst = 1 << 16

// call asks one gateway after the other until one answers, each for a share of the time that is left. Enforcers,
// which serve nodes too, do not have the calls.
func (c *Client) call(ctx context.Context, path string, body, into any) (err error) {
	first, gateways := c.first.Load(), c.gateways()
	if len(gateways) == 0 {
		return errs.New(errs.Unavailable, "no gateway is there")
	}
	for n := range int64(len(gateways)) {
		at := first + n
		url := strings.TrimSuffix(gateways[at%int64(len(gateways))], "/") + path
		within, cancel := context.WithTimeout(ctx, share(ctx, int64(len(gateways))-n))
		err = wire.Call(within, c.http, wire.Request{Method: http.MethodPost, URL: url, Body: body}, into)
		timeout := within.Err() != nil && ctx.Err() == nil
		cancel()
		if !errs.Is(err, errs.Unavailable) && !timeout {
			return err
		}
		c.first.CompareAndSwap(at, at+1)
	}
	return errs.WrapAs(errs.Unavailable, "enroll.call", err)
}

// share is the time for one of some gateways that are left to be asked.
func share(ctx context.Context, left int64) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return callTimeout
	}
	return min(callTimeout, time.Until(end)/time.Duration(left))
}

// Renew returns another certificate of the caller, for the key of a pki.SigningRequest. Denied if the caller is revoked
// or no service whose certificate is renewed, Unauthenticated if its certificate can no longer be renewed, Unavailable if
// no gateway answers.
func (c *Client) Renew(ctx context.Context, csr []byte) (got Certificate, err error) {
	err = c.call(ctx, RenewPath, RenewRequest{csr}, &got)
	return got, errs.Wrap("enroll.Renew", err)
}

// Secrets returns the values of an instance's references. NotFound if a secret does not exist, Denied if
// the instance is not on the caller's node, Unavailable if no gateway answers.
func (c *Client) Secrets(ctx context.Context, id fleet.InstanceID, refs map[string]string) (map[string]string, error) {
	var got SecretsAnswer
	err := c.call(ctx, SecretsPath, SecretsRequest{id, refs}, &got)
	return got.Values, errs.Wrap("enroll.Secrets", err)
}

// Join gets a certificate for a key. The bundle is for the agent's trust.file. A host that repeats it must use the
// same request, for the token admits no other key. Unauthenticated if the server is not of the token's
// authority. Errors of the gateway say why the token is refused.
func Join(ctx context.Context, t Token, request pki.SigningRequest, now func() time.Time) (JoinAnswer, []byte, error) {
	const op = "enroll.Join"
	c := NewClient(func() []string { return t.Gateways }, &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, // VerifyConnection knows the authority by its fingerprint
		VerifyConnection: func(s tls.ConnectionState) error {
			who, err := pki.VerifyIssuer(s.PeerCertificates, t.Authority, pki.Serve, now())
			if err == nil && who.Service != pki.Gateway {
				err = errs.New(errs.Unauthenticated, "%s answers there, not %s", who.Path(), pki.Gateway)
			}
			return err
		},
	}})
	var got JoinAnswer
	if err := c.call(ctx, JoinPath, JoinRequest{t.Node, t.Secret, request.CSR}, &got); err != nil {
		return JoinAnswer{}, nil, errs.Wrap(op, err)
	}
	bundle, err := got.bundle(request.Key, pki.Identity{Service: pki.Agent, Name: string(t.Node)})
	return got, bundle, errs.Wrap(op, err)
}

// bundle returns the bundle of a certificate with its key. Unavailable if it names another holder.
func (c Certificate) bundle(key []byte, who pki.Identity) ([]byte, error) {
	text := pki.NewBundle(pki.Pair{Cert: c.Certificate, Key: key}, c.Authorities...)
	b, err := pki.ParseBundle(text)
	if err == nil && b.Identity() != who {
		err = errs.New(errs.Unavailable, "the gateway has issued a certificate of %s, not of %s", b.Identity().Path(), who.Path())
	}
	return bytes.Clone(text), errs.WrapAs(errs.Unavailable, "enroll.bundle", err)
}
