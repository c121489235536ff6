// Package enroll is how a host becomes a node: with a token of the gateway, nodeagent join makes a key and
// receives a certificate for it, and the agent renews the certificate while it runs. It also has the
// other calls that agents make to gateways: those for the values of secrets. The other services renew their
// certificates in the same way.
//
//	POST /join     {node, token, csr}  -> {certificate, authorities, gateways, apiUrl}   no certificate yet
//	POST /renew    {csr}               -> {certificate, authorities}                     also with an expired one
//	POST /secrets  {instance, refs}    -> {values}
//
// A gateway serves them on nodes.listen, beside etcd's API; see package etcdproxy. It serves /renew for services on
// peers.listen, not with an expired certificate.
package enroll

import (
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// Token is what a new host must know. Its text is the secret, a dot, and the other fields in base64.
type Token struct {
	// Secret proves that the host may join. Gateways store its SHA-256.
	Secret string `json:"-"`
	// Node is the node as which it may join.
	Node fleet.NodeID `json:"n"`
	// Authority is the fingerprint of the authority of the gateways' certificates; see pki.VerifyIssuer.
	Authority string `json:"a"`
	// Gateways are the URLs at which gateways serve nodes.
	Gateways []string `json:"u"`
}

// String returns the text of the token.
func (t Token) String() string {
	b, _ := json.Marshal(t) // it has only strings
	return t.Secret + "." + base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken reads the text of a token. Invalid if it is not one, or not whole.
func ParseToken(text string) (Token, error) {
	secret, rest, ok := strings.Cut(strings.TrimSpace(text), ".")
	b, err := base64.RawURLEncoding.DecodeString(rest)
	var t Token
	if !ok || err != nil || json.Unmarshal(b, &t) != nil || secret == "" || t.Authority == "" || len(t.Gateways) == 0 {
		return Token{}, errs.New(errs.Invalid, "the token is not whole: copy all of what orrery create join-token has printed")
	}
	if err := t.Node.Validate(); err != nil {
		return Token{}, errs.New(errs.Invalid, "the token is not whole: %s", errs.MessageOf(err))
	}
	t.Secret = secret
	return t, nil
}
