package system

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/api/resource"
	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/clusterops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/wire"
)

// configRoutes serve the settings of the cluster and their versions. None is a secret.
func (a *API) configRoutes() []server.Route {
	see, write := server.Needs(auth.ClusterView), server.Needs(auth.ClusterConfigEdit)
	// In PrexorCloud's API these routes require the permission to create users.
	admin := server.Needs(auth.UsersCreate)
	return server.Under("/api/v1",
		server.Get("/cluster/config", see, a.getConfig),
		server.Post("/cluster/config", write, a.postConfig).Rehearses(),
		server.Get("/cluster/config/versions", see, a.listConfigs),
		server.Get("/cluster/config/versions/:version", see, a.getConfigVersion),
		server.Post("/cluster/config/rollback", write, a.rollbackConfig).Rehearses(),
		server.Patch("/admin/cors/origins", admin, a.patchOrigins).Rehearses(),
		server.Patch("/admin/network/allowed-subnets", admin, a.patchSubnets).Rehearses(),
	)
}

// nested returns settings as nested objects.
func nested(s cluster.ClusterSettings) map[string]any {
	out := map[string]any{}
	for key, value := range s.ByKey() {
		at, parts := out, strings.Split(key, ".")
		for _, part := range parts[:len(parts)-1] {
			inner, ok := at[part].(map[string]any)
			if !ok {
				inner = map[string]any{}
				at[part] = inner
			}
			at = inner
		}
		at[parts[len(parts)-1]] = value
	}
	return out
}

// maxDepth bounds the nesting of objects. No key has more parts.
const maxDepth = 4

// byKey flattens settings that a client sent as nested objects, with dotted keys, or as a mix. It
// returns Invalid if a key occurs twice.
func byKey(prefix string, raw json.RawMessage, into map[string]json.RawMessage) error {
	var inner map[string]json.RawMessage
	if strings.Count(prefix, ".") >= maxDepth || !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) || json.Unmarshal(raw, &inner) != nil || prefix != "" && len(inner) == 0 {
		if _, twice := into[prefix]; twice {
			return errs.Field("patch."+prefix, "is given twice")
		}
		into[prefix] = raw
		return nil
	}
	for name, value := range inner {
		key := name
		if prefix != "" {
			key = prefix + "." + name
		}
		if err := byKey(key, value, into); err != nil {
			return err
		}
	}
	return nil
}

func (a *API) getConfig(c *gin.Context) {
	active := a.cfg.Operations.Snapshot().Config()
	if active.ModRev != 0 {
		server.ETag(c, active.ModRev)
	}
	c.JSON(http.StatusOK, gin.H{
		"activeVersion": active.Version, "patch": nested(active.Patch), "effective": nested(a.cfg.Settings.Now().Patch()),
	})
}

// configVersion is a version in a list.
type configVersion struct {
	Version       int64     `json:"version"`
	ParentVersion int64     `json:"parentVersion"`
	Mutator       string    `json:"mutator"`
	MutatedAt     time.Time `json:"mutatedAt"`
	Reason        string    `json:"reason"`
	IsActive      bool      `json:"isActive"`
}

func configVersionOf(v cluster.ConfigVersion, active int64) configVersion {
	return configVersion{
		Version: v.Version, ParentVersion: v.Parent, Mutator: v.By, MutatedAt: v.At, Reason: v.Reason, IsActive: v.Version == active,
	}
}

func (a *API) listConfigs(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	out, active := []configVersion{}, s.Config().Version
	for _, v := range s.ConfigVersions.All() {
		out = append(out, configVersionOf(*v, active))
	}
	slices.Reverse(out) // the newest first
	c.JSON(http.StatusOK, gin.H{"activeVersion": active, "versions": out})
}

func (a *API) getConfigVersion(c *gin.Context) {
	number, err := strconv.ParseInt(c.Param("version"), 10, 64)
	if err != nil {
		server.Fail(c, &errs.Error{Kind: errs.Malformed, Field: "version", Message: "version must be a whole number"})
		return
	}
	s := a.cfg.Operations.Snapshot()
	v, ok := clusterops.ConfigVersion(s, number)
	if !ok || number == 0 {
		server.Fail(c, errs.New(errs.NotFound, "there is no version %d of the settings", number))
		return
	}
	c.JSON(http.StatusOK, struct {
		configVersion
		Patch map[string]any `json:"patch"`
	}{configVersionOf(v, s.Config().Version), nested(v.Patch)})
}

func (a *API) postConfig(c *gin.Context) {
	var b struct {
		ParentVersion *int64          `json:"parentVersion"`
		Patch         json.RawMessage `json:"patch"`
		Reason        string          `json:"reason"`
	}
	if !server.Bind(c, &b) {
		return
	}
	changes := map[string]json.RawMessage{}
	if b.ParentVersion == nil {
		server.Fail(c, errs.Field("parentVersion", "is missing: send the activeVersion that you read, or 0 before the first version"))
		return
	}
	if !bytes.HasPrefix(bytes.TrimSpace(b.Patch), []byte("{")) {
		server.Fail(c, errs.Field("patch", "must be an object of the settings to change"))
		return
	}
	if err := byKey("", b.Patch, changes); err != nil {
		server.Fail(c, err)
		return
	}
	if len(changes) == 0 {
		server.Fail(c, errs.Field("patch", "names no setting: null removes a setting"))
		return
	}
	done, ok := a.writeConfig(c, clusterops.ConfigWrite{Parent: b.ParentVersion, Reason: b.Reason, Change: changing("patch.", changes)})
	if !ok {
		return
	}
	status := http.StatusCreated
	if !done.Changed {
		status = http.StatusOK
	}
	c.JSON(status, gin.H{"version": done.After.Version, "parentVersion": *b.ParentVersion})
}

// changing returns a function that changes settings by key. prefix precedes the fields of its
// errors.
func changing(prefix string, changes map[string]json.RawMessage) func(cluster.ClusterSettings) (cluster.ClusterSettings, error) {
	return func(active cluster.ClusterSettings) (cluster.ClusterSettings, error) {
		next, problems := active.With(changes)
		if len(problems) == 0 {
			return next, nil
		}
		first := problems[0]
		return next, &errs.Error{Kind: errs.Invalid, Field: prefix + errs.FieldOf(first), Message: errs.MessageOf(first), Err: first}
	}
}

// writeConfig writes a version. It returns false if it answered the request, as it does for dry
// runs.
func (a *API) writeConfig(c *gin.Context, w clusterops.ConfigWrite) (done clusterops.ConfigWritten, ok bool) {
	var err error
	w.Bearable, w.DryRun = a.stillAdmits(c), server.DryRun(c)
	if w.IfMatch, err = server.IfMatch(c); err == nil {
		done, err = a.cfg.Operations.WriteConfig(c.Request.Context(), server.Actor(c), w)
	}
	if ok = configDone(c, done, err); ok && done.After.ModRev != 0 { // there is no ETag before the first version
		server.ETag(c, done.After.ModRev)
	}
	return done, ok
}

// stillAdmits refuses settings that would lock out the caller.
func (a *API) stillAdmits(c *gin.Context) func(cluster.ClusterSettings) error {
	return func(p cluster.ClusterSettings) error {
		next := a.cfg.Settings.Under(p)
		if from := server.AddressUnder(c, next); !next.Admits(from) {
			return errs.Field("network.allowedSubnets", "would lock you out: your address would be %s, so add its network", from)
		}
		return nil
	}
}

// configDone answers errors and dry runs. It returns false if it did.
func configDone(c *gin.Context, done clusterops.ConfigWritten, err error) (ok bool) {
	var stale *clusterops.StaleConfigError
	switch {
	case errors.As(err, &stale):
		server.Refuse(c, wire.Reply{Status: http.StatusConflict, Code: "PARENT_VERSION_STALE", Message: stale.Error()})
	case err != nil:
		server.Fail(c, err)
	case server.DryRun(c):
		action := "none"
		if done.Changed {
			action = "update"
		}
		c.JSON(http.StatusOK, gin.H{
			"dryRun": true, "action": action, "version": done.After.Version, "diff": configDiff(done.Before.Patch, done.After.Patch),
		})
	default:
		return true
	}
	return false
}

// configDiff lists the changed settings, sorted by key. Unset values are null.
func configDiff(before, after cluster.ClusterSettings) []resource.FieldChange {
	from, to := resource.AsMap(before), resource.AsMap(after)
	for key := range from {
		if _, ok := to[key]; !ok {
			to[key] = nil
		}
	}
	return resource.Differences(from, to)
}

func (a *API) rollbackConfig(c *gin.Context) {
	var b struct {
		TargetVersion *int64 `json:"targetVersion"`
		Reason        string `json:"reason"`
	}
	if !server.Bind(c, &b) {
		return
	}
	if b.TargetVersion == nil {
		server.Fail(c, errs.Field("targetVersion", "is missing: send the version to restore, or 0 for none"))
		return
	}
	done, err := a.cfg.Operations.RollbackConfig(c.Request.Context(), server.Actor(c), *b.TargetVersion, b.Reason, a.stillAdmits(c), server.DryRun(c))
	if configDone(c, done, err) {
		c.JSON(http.StatusOK, gin.H{"activeVersion": done.After.Version})
	}
}
