package server

import (
	"net/netip"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server/settings"
	"github.com/orreryhq/orrery/libs/errs"
)

// peerKey is the context key of the sender's address when proxies are trusted.
const peerKey = "orrery.peer"

// proxiedKey is the context key that is set if the sender of a request is a trusted proxy.
const proxiedKey = "orrery.proxied"

const (
	headerForwardedFor   = "X-Forwarded-For"
	headerForwardedProto = "X-Forwarded-Proto"
)

// address replaces the remote address of a request from a trusted proxy with its client's address.
func (s *Server) address(c *gin.Context) {
	now := s.cfg.Settings.Now()
	if len(now.Proxies) == 0 {
		return
	}
	peer, ok := settings.Address(c.Request.RemoteAddr)
	if !ok {
		return
	}
	c.Set(peerKey, peer)
	c.Set(proxiedKey, now.Trusts(peer))
	if client := now.Client(peer, c.Request.Header.Values(headerForwardedFor)); client != peer {
		c.Request.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	}
}

// Scheme returns https if the client sent the request over TLS: to the gateway, or to a trusted proxy that
// says so. Otherwise it returns http.
func Scheme(c *gin.Context) string {
	if c.Request.TLS != nil {
		return "https"
	}
	// The client may have forged what is before the last comma.
	sent := strings.Join(c.Request.Header.Values(headerForwardedProto), ",")
	last := strings.TrimSpace(sent[strings.LastIndex(sent, ",")+1:])
	if c.GetBool(proxiedKey) && strings.EqualFold(last, "https") {
		return "https"
	}
	return "http"
}

// AddressUnder returns the client address of a request under other settings; the zero address if it
// is unknown.
func AddressUnder(c *gin.Context, other settings.Settings) netip.Addr {
	kept, _ := c.Get(peerKey)
	peer, ok := kept.(netip.Addr)
	if !ok { // no trusted proxy named another address
		peer, _ = settings.Address(c.Request.RemoteAddr)
	}
	return other.Client(peer, c.Request.Header.Values(headerForwardedFor))
}

// admit refuses clients outside the allowed subnets, except on health routes for load balancers and
// monitoring.
func (s *Server) admit(c *gin.Context) {
	now := s.cfg.Settings.Now()
	if len(now.Subnets) == 0 || aboutHealth(c.FullPath()) {
		return
	}
	if from, _ := settings.Address(c.Request.RemoteAddr); !now.Admits(from) {
		Fail(c, errs.New(errs.Denied, "the API may not be used from your address %s: an administrator can add its network to network.allowedSubnets", c.ClientIP()))
	}
}

// aboutHealth reports whether a route only returns the health of the gateway.
func aboutHealth(route string) bool {
	switch route {
	case "/api/v1/system/health", "/api/v1/system/ready", "/api/v1/system/version":
		return true
	}
	return probe(route)
}
