package instances

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
)

// metrics answers with what an instance last reported, as a server or as a proxy.
func (a *API) metrics(proxy bool) gin.HandlerFunc {
	return func(c *gin.Context) {
		i, m, err := a.cfg.Operations.Measured(c.Request.Context(), c.Param("id"), proxy)
		if err != nil {
			server.Fail(c, err)
			return
		}
		out := map[string]any{}
		if err := json.Unmarshal(m.Figures, &out); err != nil {
			server.Fail(c, errs.WrapAs(errs.Internal, "instances.metrics", err))
			return
		}
		out["instanceId"], out["collectedAt"] = i.Intent.Name, m.At
		c.JSON(http.StatusOK, out)
	}
}
