package server

import (
	"net/netip"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/settings"
	"github.com/orreryhq/orrery/libs/errs"
)

// peerKey is where a request keeps who sent it when that is a proxy.
const peerKey = "orrery.peer"

const headerForwardedFor = "X-Forwarded-For"

// address has a request that a trusted proxy passes on count as its client's from here on.
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
	if client := now.Client(peer, c.Request.Header.Values(headerForwardedFor)); client != peer {
		c.Request.RemoteAddr = netip.AddrPortFrom(client, 0).String()
	}
}

// AddressUnder is the address a request would count as under other settings; the zero
// address when it has none.
func AddressUnder(c *gin.Context, other settings.Settings) netip.Addr {
	kept, _ := c.Get(peerKey)
	peer, ok := kept.(netip.Addr)
	if !ok { // nobody's word was taken for it
		peer, _ = settings.Address(c.Request.RemoteAddr)
	}
	return other.Client(peer, c.Request.Header.Values(headerForwardedFor))
}

// admit refuses who comes from none of the allowed subnets, except where load balancers and
// monitoring ask how the gateway is.
func (s *Server) admit(c *gin.Context) {
	now := s.cfg.Settings.Now()
	if len(now.Subnets) == 0 || aboutHealth(c.FullPath()) {
		return
	}
	if from, _ := settings.Address(c.Request.RemoteAddr); !now.Admits(from) {
		Fail(c, errs.New(errs.Denied, "the API may not be used from your address %s: an administrator can add its network to network.allowedSubnets", c.ClientIP()))
	}
}

// aboutHealth reports whether a route tells how the gateway is, and nothing else.
func aboutHealth(route string) bool {
	switch route {
	case "/api/v1/system/health", "/api/v1/system/ready", "/api/v1/system/version":
		return true
	}
	return probe(route)
}
