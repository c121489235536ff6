package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"

	"github.com/orreryhq/orrery/libs/errs"
)

// SigningRequest is a key and the request to sign a certificate for it, both in PEM. Only the request
// leaves the host.
type SigningRequest struct{ CSR, Key []byte }

const requestBlock = "CERTIFICATE REQUEST"

// NewSigningRequest makes a key and its request. The signer decides whose certificate it becomes.
func NewSigningRequest() (SigningRequest, error) {
	key, err := newKey()
	if err != nil {
		return SigningRequest{}, errs.Wrap("pki.NewSigningRequest", err)
	}
	own, err := pair(nil, key)
	if err != nil {
		return SigningRequest{}, errs.Wrap("pki.NewSigningRequest", err)
	}
	return SigningRequestFor(own.Key)
}

// SigningRequestFor makes the request for a key that NewSigningRequest has made.
func SigningRequestFor(keyText []byte) (SigningRequest, error) {
	key, err := parseKey(keyText)
	if err != nil {
		return SigningRequest{}, errs.Wrap("pki.SigningRequestFor", err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return SigningRequest{}, errs.WrapAs(errs.Internal, "pki.SigningRequestFor", err)
	}
	return SigningRequest{CSR: pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}), Key: keyText}, nil
}

// RequestedKey returns the key for which a request wants a certificate. Invalid unless its sender has the
// private key, which is an ECDSA key of the curve P-256.
func RequestedKey(csr []byte) (*ecdsa.PublicKey, error) {
	der, err := block(csr, requestBlock)
	if err != nil {
		return nil, err
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, errs.WrapAs(errs.Invalid, "pki.RequestedKey", err)
	}
	if err := r.CheckSignature(); err != nil {
		return nil, errs.New(errs.Invalid, "the request for a certificate is not signed by its key")
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve.Params().BitSize != 256 {
		return nil, errs.New(errs.Invalid, "the request for a certificate needs an ECDSA key of the curve P-256")
	}
	return key, nil
}

// fingerprint is the SHA-256 of a certificate, in hex.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}
