package oidclogin

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
)

// CheckRedirect returns Invalid unless a login may end at a URI: a path of the gateway itself, a program
// on the user's machine (RFC 8252: http on a loopback address, any port), or a page of one of the
// origins. An origin of * does not count. A grant must not reach others, although only the client that
// has the verifier can use it.
func CheckRedirect(uri string, origins []string) error {
	const advice = "must be a path of this gateway, http on 127.0.0.1 or [::1], or a page of one of cors.origins"
	u, err := url.Parse(uri)
	switch {
	case err != nil, u.User != nil, u.Fragment != "", u.Opaque != "", strings.ContainsAny(uri, "\\\t\r\n"):
		return errs.Field("redirect_uri", advice)
	case u.Scheme == "" && u.Host == "" && strings.HasPrefix(uri, "/") && !strings.HasPrefix(uri, "//"):
		return nil
	case u.Scheme == "http" && isLoopback(u.Hostname()):
		return nil
	case u.Host != "" && u.Scheme != "" && slices.Contains(origins, u.Scheme+"://"+u.Host):
		return nil
	}
	return errs.Field("redirect_uri", advice)
}

// isLoopback reports whether a host is a loopback address. A name such as localhost may lead elsewhere.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Extended returns a URI with parameters added to its query.
func Extended(uri string, add url.Values) string {
	u, err := url.Parse(uri)
	if err != nil { // CheckRedirect has parsed it
		return uri
	}
	query := u.Query()
	for name, values := range add {
		query[name] = values
	}
	u.RawQuery = query.Encode()
	return u.String()
}
