package doctor

import (
	"crypto/x509"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/orreryhq/orrery/cli/internal/kinds"
)

const (
	// renewBefore is how long before its end a certificate should have been renewed.
	renewBefore = 14 * 24 * time.Hour
	// renewShare is the part of its time that is left when one that is valid for a short time should have been renewed.
	renewShare = 3

	renewFix = "renew it on the machine where TLS ends: sudo certbot renew; a gateway then uses the new files by itself, and a proxy needs a reload, such as sudo systemctl reload nginx"
)

// judgeCertificate judges the certificate of a chain that ends first.
func judgeCertificate(found *findings, address string, chain []*x509.Certificate) {
	first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	left, end := kinds.Duration(time.Until(first.NotAfter)), kinds.Moment(first.NotAfter)
	if time.Until(first.NotAfter) < min(renewBefore, first.NotAfter.Sub(first.NotBefore)/renewShare) {
		found.add(warn, renewFix, "the certificate of %s ends in %s, at %s", address, left, end)
		return
	}
	found.add(ok, "", "the certificate of %s is valid for %s, until %s", address, left, end)
}

// addCertificateError adds why this machine does not accept the certificate of a server. It returns false if err has
// another cause.
func addCertificateError(found *findings, address string, err error) bool {
	host := address
	if u, err := url.Parse(address); err == nil {
		host = u.Hostname()
	}
	var invalid x509.CertificateInvalidError
	var wrongName x509.HostnameError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && time.Now().Before(invalid.Cert.NotBefore):
		found.add(fail, "check the clock of this machine: timedatectl; otherwise "+renewFix, "the certificate of %s is valid only from %s on", address, kinds.Moment(invalid.Cert.NotBefore))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		end := invalid.Cert.NotAfter
		found.add(fail, renewFix, "the certificate of %s expired %s ago, at %s", address, kinds.Duration(time.Since(end)), kinds.Moment(end))
	case errors.As(err, &wrongName):
		found.add(fail, "log in with a name that it has, or get one for "+host+": sudo certbot certonly -d "+host, "the certificate of %s is not for that name: %v", address, wrongName)
	case errors.As(err, &authority):
		found.add(fail, "if you trust its authority, store its certificate in a file: orrery context set NAME --ca FILE; otherwise get a certificate from a known one: sudo certbot certonly -d "+host,
			"this machine does not know the authority that signed the certificate of %s", address)
	default:
		return false
	}
	return true
}
