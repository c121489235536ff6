package apigateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/store/storetest"
)

// Tokens are valid for at least a day, so a gateway must accept tokens from one whose clock is off by
// half a day.
func TestTokensWorkDespiteClockSkew(t *testing.T) {
	t.Parallel()
	etcd := storetest.Start(t)
	var sites []*site
	for _, ahead := range []time.Duration{0, 12 * time.Hour, -11 * time.Hour} {
		sites = append(sites, newSiteOn(t, etcd, func(c *Config) {
			c.Now = func() time.Time { return time.Now().Add(ahead) }
		}))
	}
	for n, from := range sites {
		login := from.do("POST", "/api/v1/auth/login", map[string]string{"username": "admin", "password": adminPassword}).want(200)
		made := from.as(login.field("token").(string)).do("POST", "/api/v1/api-tokens", fmt.Sprintf(`{"name":"ci-%d"}`, n)).want(201)
		refresh := login.field("refreshToken").(string)
		for _, at := range sites {
			at.revisionSeen()
			at.as(login.field("token").(string)).do("GET", "/api/v1/groups", nil).want(200)
			at.as(made.field("token").(string)).do("GET", "/api/v1/groups", nil).want(200)
			next := at.refresh(refresh).want(200)
			refresh = next.field("refreshToken").(string)
			at.as(next.field("token").(string)).do("GET", "/api/v1/groups", nil).want(200)
		}
	}
}
