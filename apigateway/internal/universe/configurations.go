package universe

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// configuration finds a group. One that is being deleted is gone to clients.
func configuration(s *view.Snapshot, name string) (*fleet.Group, error) {
	g, ok := s.Groups.Get(fleet.GroupName(name))
	if !ok || g.Deleting {
		return nil, errs.New(errs.NotFound, "Configuration not found")
	}
	return g, nil
}

func (a *API) listConfigurations(c *gin.Context) {
	out := []Configuration{}
	for _, g := range a.snapshot().Groups.All() {
		if !g.Deleting {
			out = append(out, configurationOf(g))
		}
	}
	c.JSON(http.StatusOK, out)
}

func (a *API) getConfiguration(c *gin.Context) {
	g, err := configuration(a.snapshot(), c.Param("name"))
	if err != nil {
		fail(c, err)
		return
	}
	c.JSON(http.StatusOK, configurationOf(g))
}

func (a *API) putConfiguration(c *gin.Context) {
	var b configurationBody
	if err := body(c, &b); err != nil {
		fail(c, err)
		return
	}
	if err := a.cfg.Operations.PutGroup(c.Request.Context(), a.cfg.By(c), fleet.GroupName(c.Param("name")), b.spec); err != nil {
		fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func (a *API) deleteConfiguration(c *gin.Context) {
	g, err := configuration(a.snapshot(), c.Param("name"))
	if err == nil {
		err = a.cfg.Operations.DeleteGroup(c.Request.Context(), a.cfg.By(c), g.Name)
	}
	if err != nil {
		fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}
