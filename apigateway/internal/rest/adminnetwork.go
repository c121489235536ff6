package rest

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/operate"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// listed is one of the settings that are lists of texts.
type listed struct {
	key string
	// field is how a client calls one entry.
	field string
	of    func(fleet.ClusterSettings) *[]string
}

// anyOrigin in the list of origins lets pages of all of them call.
const anyOrigin = "*"

func (a *API) patchOrigins(c *gin.Context) {
	var b struct {
		Action string `json:"action"`
		Origin string `json:"origin"`
	}
	if !server.Bind(c, &b) {
		return
	}
	origins := listed{"http.cors.allowedOrigins", "origin", func(s fleet.ClusterSettings) *[]string { return s.AllowedOrigins }}
	if done, ok := a.editList(c, origins, b.Action, b.Origin); ok {
		now := a.cfg.Settings.Now().Origins
		answer := gin.H{
			"changed": done.Changed, "restartRequired": false, "version": done.After.Version,
			"allowedOrigins": append([]string{}, now...), "wideOpen": slices.Contains(now, anyOrigin),
		}
		if slices.Contains(now, anyOrigin) {
			answer["warning"] = "* is still in the list, so pages of every origin may call the API: remove it with {\"action\":\"remove\",\"origin\":\"*\"}"
		}
		c.JSON(http.StatusOK, answer)
	}
}

func (a *API) patchSubnets(c *gin.Context) {
	var b struct {
		Action string `json:"action"`
		CIDR   string `json:"cidr"`
	}
	if !server.Bind(c, &b) {
		return
	}
	list := listed{"network.allowedSubnets", "cidr", func(s fleet.ClusterSettings) *[]string { return s.AllowedSubnets }}
	if done, ok := a.editList(c, list, b.Action, b.CIDR); ok {
		subnets := *a.cfg.Settings.Now().Patch().AllowedSubnets
		c.JSON(http.StatusOK, gin.H{
			"changed": done.Changed, "restartRequired": false, "version": done.After.Version, "allowedSubnets": subnets, "wideOpen": wideOpen(subnets),
		})
	}
}

// wideOpen reports whether subnets let everybody in.
func wideOpen(subnets []string) bool {
	return len(subnets) == 0 || slices.Contains(subnets, "0.0.0.0/0") && slices.Contains(subnets, "::/0")
}

// editList makes a version with one entry more, or less, than the list that holds now; ok is
// false when the request was answered.
func (a *API) editList(c *gin.Context, l listed, action, entry string) (operate.ConfigWritten, bool) {
	if action != "add" && action != "remove" {
		server.Fail(c, errs.Field("action", "must be add or remove; it is %q", action))
		return operate.ConfigWritten{}, false
	}
	one, err := setList(fleet.ClusterSettings{}, l, []string{entry})
	if err != nil {
		server.Fail(c, &errs.Error{Kind: errs.Invalid, Field: l.field, Message: errs.MessageOf(err), Err: err})
		return operate.ConfigWritten{}, false
	}
	usual := (*l.of(one))[0]
	return a.writeConfig(c, operate.ConfigWrite{Reason: action + " " + usual, Change: func(active fleet.ClusterSettings) (fleet.ClusterSettings, error) {
		now := *l.of(a.cfg.Settings.Under(active).Patch())
		switch has := slices.Contains(now, usual); {
		case action == "add" && has, action == "remove" && !has:
			return active, nil
		case action == "add":
			return setList(active, l, append(slices.Clone(now), usual))
		default:
			return setList(active, l, slices.DeleteFunc(slices.Clone(now), func(e string) bool { return e == usual }))
		}
	}})
}

// setList are settings with another list.
func setList(s fleet.ClusterSettings, l listed, entries []string) (fleet.ClusterSettings, error) {
	b, err := json.Marshal(entries)
	if err != nil {
		return s, errs.As(errs.Internal, "rest.setList", err)
	}
	return changing("", map[string]json.RawMessage{l.key: b})(s)
}
