package universe

import (
	"bytes"
	"cmp"
	"maps"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store/view"
	"github.com/orreryhq/orrery/libs/wire"
)

// configuration returns a group, or NotFound if it is missing or being deleted.
func configuration(s *view.Snapshot, name string) (*fleet.Group, error) {
	g, ok := s.Groups.Get(fleet.GroupName(name))
	if !ok || g.Deleting {
		return nil, errs.New(errs.NotFound, "Configuration not found")
	}
	return g, nil
}

// shown returns a function that converts groups for the caller. It masks protected properties and omits
// the environment for callers without groups.env.
func (a *API) shown(c *gin.Context, s *view.Snapshot) func(*fleet.Group) Configuration {
	most, definers, own := a.cfg.Shown(c), s.Definers(), server.OwnGroup(c)
	return func(g *fleet.Group) Configuration {
		out := ConfigurationOf(g)
		out.Properties = object(compose.MaskValues(g.Spec.Variables, compose.Conceal(g, definers.Of(g.Name, s.Whole(g).Spec)), most))
		if !a.cfg.May(c, auth.GroupsEnv) {
			out.EnvironmentVariables = nil
		}
		if own != "" {
			out = out.redactedForInstance()
		}
		return out
	}
}

func (a *API) listConfigurations(c *gin.Context) {
	s, out := a.snapshot(), []Configuration{}
	shown, sees := a.shown(c, s), sightOf(s, server.OwnGroup(c))
	if some := server.Sight(c, auth.GroupsView); some != nil {
		sees = some
	}
	for name, g := range s.Groups.All() {
		if !g.Deleting && sees(name) {
			out = append(out, shown(g))
		}
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) getConfiguration(c *gin.Context) {
	s := a.snapshot()
	g, err := configuration(s, c.Param("name"))
	if err == nil && !sightOf(s, server.OwnGroup(c))(g.Name) {
		err = errs.New(errs.Denied, "configuration %s shares no network with this instance", g.Name)
	}
	if err != nil {
		fail(c, err)
		return
	}
	server.ETag(c, g.ModRev)
	c.JSON(http.StatusOK, a.shown(c, s)(g))
}

// ReadConfiguration decodes a configuration as a PUT of a new one does: absent fields get their
// defaults, and unknown fields are ignored.
func ReadConfiguration(name fleet.GroupName, body []byte) (groupops.GroupWrite, error) {
	var b configurationBody
	if _, err := wire.DecodeJSONLenient(bytes.NewReader(body), 0, &b); err != nil {
		return groupops.GroupWrite{}, err
	}
	return groupops.GroupWrite{
		Name: name, Mode: groupops.Put, Written: b.written, FreeValues: true, CommandOptional: true,
		Make: func(*fleet.GroupSpec) (fleet.GroupSpec, error) { return b.spec(nil) },
	}, nil
}

// putConfiguration creates or replaces a group. With ?dryRun=true it only returns the result.
func (a *API) putConfiguration(c *gin.Context) {
	match, err := server.Condition(c)
	if err != nil {
		fail(c, err)
		return
	}
	var b configurationBody
	if err := Body(c, &b); err != nil {
		fail(c, err)
		return
	}
	spec := func(old *fleet.GroupSpec) (fleet.GroupSpec, error) {
		out, err := b.spec(old)
		if old != nil && b.EnvironmentVariables == nil && !a.cfg.May(c, auth.GroupsEnv) {
			out.Env = old.Env // the caller could not read it
		}
		return out, err
	}
	write := groupops.GroupWrite{
		Name: fleet.GroupName(c.Param("name")), Mode: groupops.Put, IfMatch: match, DryRun: dryRun(c), Make: spec, Written: b.written,
		Shown: a.cfg.Shown(c), FreeValues: true, CommandOptional: true,
	}
	out, err := a.cfg.Operations.WriteGroup(c.Request.Context(), a.cfg.By(c), write)
	switch {
	case err != nil:
		fail(c, err)
	case write.DryRun:
		shown := a.shown(c, a.snapshot())
		answer := gin.H{"dryRun": true, "before": nil, "after": shown(&out.After)}
		if out.Before != nil {
			answer["before"] = shown(out.Before)
		}
		c.JSON(http.StatusOK, answer)
	default:
		c.Header("ETag", etag(out.After.ModRev))
		c.Status(http.StatusNoContent)
	}
}

func (a *API) deleteConfiguration(c *gin.Context) {
	g, err := configuration(a.snapshot(), c.Param("name"))
	match, malformed := server.IfMatch(c)
	if err = cmp.Or(malformed, err); err == nil {
		_, err = a.cfg.Operations.DeleteGroup(c.Request.Context(), a.cfg.By(c), g.Name, match, dryRun(c))
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func dryRun(c *gin.Context) bool { return c.Query("dryRun") == "true" }

func etag(rev int64) string { return strconv.Quote(strconv.FormatInt(rev, 10)) }

// sightOf returns whether a caller sees a group. own is server.OwnGroup: an instance sees the
// groups that share a network with its own. If its group is in no network, it sees all groups
// that are in none. Other callers, with own "", see all groups.
func sightOf(s *view.Snapshot, own fleet.GroupName) func(fleet.GroupName) bool {
	if own == "" {
		return func(fleet.GroupName) bool { return true }
	}
	return s.NetworkPeers(own)
}

// redactedForInstance is a configuration as instances see it: without its environment, the rules
// that write values into its files, and properties that are masked, refer to a secret or have
// the name of one.
func (out Configuration) redactedForInstance() Configuration {
	out.EnvironmentVariables, out.ConfigRules = nil, &[]configfile.ConfigPatch{}
	out.Properties = maps.Clone(out.Properties)
	maps.DeleteFunc(out.Properties, func(key, value string) bool {
		_, err := content.ParseSecretRef(value)
		return value == content.Hidden || err == nil || secretly.MatchString(key)
	})
	return out
}
