package sources

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/sourceops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// gitopsSource is the state of a source that declares groups and the catalog.
type gitopsSource struct {
	Source   string       `json:"source"`
	Revision string       `json:"revision"`
	Held     string       `json:"held"`
	SyncedAt *time.Time   `json:"syncedAt"`
	State    string       `json:"state"`
	Message  string       `json:"message"`
	Items    []gitopsItem `json:"items"`
}

type gitopsItem struct {
	// Kind is group, catalog or template.
	Kind string `json:"kind"`
	Name string `json:"name"`
	// State is IN_SYNC, FAILED, CONFLICT, HELD, REMOVING or REMOVED. It is SYNCING until the first
	// check.
	State   string `json:"state"`
	Message string `json:"message"`
	File    string `json:"file"`
}

// gitops answers for each declaring source whether every declared object is in sync.
func (a *API) gitops(c *gin.Context) {
	all, err := a.sources.List(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	declared, err := a.sources.Declared(c.Request.Context())
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := []gitopsSource{}
	for _, s := range all {
		if s.Declares {
			out = append(out, gitopsOf(s, declared[s.Name]))
		}
	}
	c.JSON(http.StatusOK, out)
}

func gitopsOf(s sourceops.Source, declared []sourceops.Declared) gitopsSource {
	v := sourceViewOf(s).Status
	out := gitopsSource{Source: s.Name, Revision: v.Revision, Held: v.Held, SyncedAt: v.At, State: v.State, Message: v.Message, Items: []gitopsItem{}}
	for _, d := range declared {
		item := gitopsItem{Kind: d.Kind, Name: d.Name, State: string(d.Status.State), Message: d.Status.Message, File: d.File}
		if item.State == "" {
			item.State = "SYNCING"
		}
		out.Items = append(out.Items, item)
	}
	for i, t := range v.Items {
		item := gitopsItem{Kind: "template", Name: t.Template, State: string(compose.DeclaredInSync), Message: t.Message}
		switch {
		case s.Status.Items[i].Kept:
			item.State = string(content.SourceHeld)
		case t.Hash == "":
			item.State = string(compose.DeclaredFailed)
		}
		out.Items = append(out.Items, item)
	}
	if out.State == string(content.SourceInSync) {
		out.reportFailures()
	}
	return out
}

// reportFailures marks a source FAILED if one of its items failed.
func (g *gitopsSource) reportFailures() {
	bad := slices.DeleteFunc(slices.Clone(g.Items), func(i gitopsItem) bool {
		return i.State != string(compose.DeclaredFailed) && i.State != string(compose.DeclaredConflict)
	})
	if len(bad) > 0 {
		g.State = string(content.SourceFailed)
		g.Message = fmt.Sprintf("%d of %d items are not in sync, the first is %s %s, %s: %s", len(bad), len(g.Items), bad[0].Kind, bad[0].Name, bad[0].State, bad[0].Message)
	}
}
