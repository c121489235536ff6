package stack

import (
	"net"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// reachedAt checks that the API may be served at an address, and returns the URL at which instances and
// programs on this host reach it.
func (o Options) reachedAt(at net.Addr) (string, error) {
	for _, err := range append(o.Transport.Validate(), o.Transport.Check(at)) {
		if err != nil {
			return "", flagError(err)
		}
	}
	url, err := o.Transport.URL(at)
	if o.APIURL != "" {
		url = o.APIURL
	}
	return url, flagError(err)
}

// flagError returns an error of the gateway's settings in the words of flags. Other errors stay.
func flagError(err error) error {
	if !errs.Is(err, errs.Invalid) {
		return err
	}
	flagNames := strings.NewReplacer(
		"tls.cert", "-tls-cert", "tls.key", "-tls-key", "tls.hsts", "-tls-hsts", "tls.acme.hosts", "-tls-acme-hosts", "tls.acme.directory", "-tls-acme-directory",
		"tls.acme.cache", "-tls-acme-cache", "tls.acme.ca", "-tls-acme-ca", "behind-proxy", "-behind-proxy", "insecure-http", "-insecure-http",
	)
	field, message := errs.FieldOf(err), errs.MessageOf(err)
	switch flagged := flagNames.Replace(field); {
	case field == "listen":
		return errs.New(errs.Invalid, "-listen %s", flagNames.Replace(message))
	case flagged == field:
		return err
	case strings.HasPrefix(message, field): // it names its setting already
		return errs.New(errs.Invalid, "%s", flagNames.Replace(message))
	default:
		return errs.Field(flagged, "%s", flagNames.Replace(message))
	}
}
