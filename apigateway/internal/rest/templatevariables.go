package rest

import (
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// usedVariable is a placeholder that a template's files use.
type usedVariable struct {
	Key string `json:"key"`
	// Defined is true when the template defines it, BuiltIn when every instance has it.
	Defined bool         `json:"defined"`
	BuiltIn bool         `json:"builtIn"`
	Files   []client.Use `json:"files"`
}

// scanVariables are the placeholders that a template's files use, as a bare array.
func (a *API) scanVariables(c *gin.Context) {
	h, digest, ok := a.versionOf(c)
	if !ok {
		return
	}
	found, err := a.cfg.Templates.Placeholders(c.Request.Context(), digest)
	if err != nil {
		server.Fail(c, err)
		return
	}
	builtIn := fleet.Placeholders(fleet.PlaceholderContext{})
	out := make([]usedVariable, 0, len(found.Keys))
	for _, k := range found.Keys {
		_, every := builtIn[k.Key]
		out = append(out, usedVariable{
			Key: k.Key, Files: k.Uses, BuiltIn: every || strings.HasPrefix(k.Key, "PORT_"),
			Defined: slices.ContainsFunc(h.Variables, func(v fleet.Variable) bool { return v.Key == k.Key }),
		})
	}
	warnPartial(c, found.Partial)
	c.JSON(http.StatusOK, out)
}
