package system

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
)

// listSetting is a setting that is a list of strings.
type listSetting struct {
	key string
	// field is the name of an entry in the request.
	field string
	of    func(cluster.ClusterSettings) *[]string
}

// anyOrigin in the list of origins allows all of them.
const anyOrigin = "*"

func (a *API) patchOrigins(c *gin.Context) {
	var b struct {
		Action string `json:"action"`
		Origin string `json:"origin"`
	}
	if !server.Bind(c, &b) {
		return
	}
	origins := listSetting{"http.cors.allowedOrigins", "origin", func(s cluster.ClusterSettings) *[]string { return s.AllowedOrigins }}
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
	list := listSetting{"network.allowedSubnets", "cidr", func(s cluster.ClusterSettings) *[]string { return s.AllowedSubnets }}
	if done, ok := a.editList(c, list, b.Action, b.CIDR); ok {
		subnets := *a.cfg.Settings.Now().Patch().AllowedSubnets
		c.JSON(http.StatusOK, gin.H{
			"changed": done.Changed, "restartRequired": false, "version": done.After.Version, "allowedSubnets": subnets, "wideOpen": wideOpen(subnets),
		})
	}
}

// wideOpen reports whether the subnets admit every address.
func wideOpen(subnets []string) bool {
	return len(subnets) == 0 || slices.Contains(subnets, "0.0.0.0/0") && slices.Contains(subnets, "::/0")
}

// editList adds an entry to a list or removes one. It returns false if it answered the request.
func (a *API) editList(c *gin.Context, l listSetting, action, entry string) (clusterops.ConfigWritten, bool) {
	if action != "add" && action != "remove" {
		server.Fail(c, errs.Field("action", "must be add or remove; it is %q", action))
		return clusterops.ConfigWritten{}, false
	}
	one, err := setList(cluster.ClusterSettings{}, l, []string{entry})
	if err != nil {
		server.Fail(c, &errs.Error{Kind: errs.Invalid, Field: l.field, Message: errs.MessageOf(err), Err: err})
		return clusterops.ConfigWritten{}, false
	}
	usual := (*l.of(one))[0]
	return a.writeConfig(c, clusterops.ConfigWrite{Reason: action + " " + usual, Change: func(active cluster.ClusterSettings) (cluster.ClusterSettings, error) {
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

// setList returns the settings with another list.
func setList(s cluster.ClusterSettings, l listSetting, entries []string) (cluster.ClusterSettings, error) {
	b, err := json.Marshal(entries)
	if err != nil {
		return s, errs.WrapAs(errs.Internal, "rest.setList", err)
	}
	return changing("", map[string]json.RawMessage{l.key: b})(s)
}
