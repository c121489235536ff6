package rest

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// headerSequence numbers what an instance says: each call's is higher than the one before.
const headerSequence = "X-Prexor-Sequence"

// saysReady is the state an instance gives itself when it serves.
const saysReady = "ONLINE"

// ownRoutes are what servers and proxies call from inside, each for itself: the
// instance is the one whose own token is sent.
func (a *API) ownRoutes(base string) []server.Route {
	return server.Under(base,
		server.Post("/ready", server.Own, a.pluginReady),
		server.Post("/heartbeat", server.Own, a.pluginHeartbeat),
		server.Post("/auth/refresh", server.Own, a.pluginRefresh),
	)
}

// pluginTokenLife is after what time known plugins are to ask for their token again.
const pluginTokenLife = 15 * time.Minute

// workloadToken is an instance's own token as known plugins read it.
type workloadToken struct {
	Token            string           `json:"token"`
	InstanceID       fleet.InstanceID `json:"instanceId"`
	IssuedAt         time.Time        `json:"issuedAt"`
	ExpiresAt        time.Time        `json:"expiresAt"`
	ExpiresInSeconds int              `json:"expiresInSeconds"`
}

// pluginRefresh answers with the token that was sent: it is good until the instance ends,
// and was looked at just now. It changes nothing, so it wants no number and no body.
func (a *API) pluginRefresh(c *gin.Context) {
	_, token, _ := strings.Cut(c.GetHeader("Authorization"), " ")
	now := a.cfg.Now().UTC()
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, workloadToken{
		Token: strings.TrimSpace(token), InstanceID: server.OwnInstance(c), IssuedAt: now,
		ExpiresAt: now.Add(pluginTokenLife), ExpiresInSeconds: int(pluginTokenLife / time.Second),
	})
}

// pluginReady takes that the instance serves. With readiness heartbeat it is RUNNING then.
func (a *API) pluginReady(c *gin.Context) { a.beat(c, client.Heartbeat{State: saysReady}) }

// pluginHeartbeat takes a sign of life and what the instance knows of its players.
func (a *API) pluginHeartbeat(c *gin.Context) {
	var b struct {
		Players    *int     `json:"players"`
		MaxPlayers *int     `json:"maxPlayers"`
		TPS        *float64 `json:"tps"`
	}
	if server.BindOptional(c, &b) {
		a.beat(c, client.Heartbeat{Players: b.Players, MaxPlayers: b.MaxPlayers, TPS: b.TPS})
	}
}

func (a *API) beat(c *gin.Context, h client.Heartbeat) {
	text := c.GetHeader(headerSequence)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		server.Fail(c, &errs.Error{
			Kind: errs.Malformed, Field: headerSequence, Message: "must be a positive number that is higher in every call; it is " + strconv.Quote(text),
		})
		return
	}
	h.Sequence = n
	err = a.cfg.Operations.Heartbeat(c.Request.Context(), string(server.OwnInstance(c)), h)
	if errs.Is(err, errs.AlreadyExists) { // somebody repeats what was overheard
		err = &errs.Error{Kind: errs.Unauthenticated, Field: headerSequence, Message: "was used already: " + errs.MessageOf(err), Err: err}
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}
