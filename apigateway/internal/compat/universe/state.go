package universe

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/groupfields"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// millis is a time in milliseconds since 1970, sent as a number or numeric string.
type millis struct{ time.Time }

// UnmarshalJSON decodes either form. It returns Malformed for anything else.
func (m *millis) UnmarshalJSON(b []byte) error {
	text := string(b)
	if text == "null" {
		return nil
	}
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return &errs.Error{Kind: errs.Malformed, Field: "lastHeartbeat", Message: "lastHeartbeat must be milliseconds since 1970"}
	}
	m.Time = time.UnixMilli(n)
	return nil
}

// putState accepts a heartbeat of an instance and forwards it to the agent, which knows whether the
// process lives: a heartbeat neither revives nor ends an instance.
func (a *API) putState(c *gin.Context) {
	_, i, err := a.instance(c)
	if err != nil {
		fail(c, err)
		return
	}
	var b struct {
		State         string `json:"state"`
		LastHeartbeat millis `json:"lastHeartbeat"`
		Players       *whole `json:"players"`
		MaxPlayers    *whole `json:"maxPlayers"`
		TPS           *real  `json:"tps"`
	}
	if err := Body(c, &b); err != nil {
		fail(c, err)
		return
	}
	state := strings.ToUpper(b.State)
	if !slices.Contains([]string{creating, online, offline, stopped}, state) {
		refuse(c, http.StatusBadRequest, "Invalid state")
		return
	}
	h := client.Heartbeat{State: state, At: b.LastHeartbeat.Time, Players: (*int)(b.Players), MaxPlayers: (*int)(b.MaxPlayers), TPS: (*float64)(b.TPS)}
	if err := a.cfg.Operations.Heartbeat(c.Request.Context(), string(i.Intent.ID), h); err != nil {
		fail(c, err)
		return
	}
	s, i, err := a.instance(c)
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, InstanceOf(s, i, a.cfg.Now()).heard(h, a.cfg.Now()))
}

// heard returns the instance with a heartbeat that it just sent; the agent's report follows later.
func (out Instance) heard(h client.Heartbeat, now time.Time) Instance {
	at := now
	if !h.At.IsZero() && h.At.Before(now) {
		at = h.At
	}
	out.LastHeartbeat = max(out.LastHeartbeat, at.UnixMilli())
	groupfields.Set(&out.Players, some(h.Players))
	groupfields.Set(&out.MaxPlayers, some(h.MaxPlayers))
	groupfields.Set(&out.TPS, some(h.TPS))
	return out
}

// some returns nil for nil, else a pointer for a nullable field.
func some[T any](v *T) **T {
	if v == nil {
		return nil
	}
	return &v
}
