package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// variableDefinition is the definition of a template's variable; all fields are always there.
type variableDefinition struct {
	Key          string              `json:"key"`
	Type         fleet.VariableType  `json:"type"`
	DefaultValue *string             `json:"defaultValue"`
	Required     bool                `json:"required"`
	Validation   fleet.VariableRule  `json:"validation"`
	Scope        fleet.VariableScope `json:"scope"`
	Visibility   string              `json:"visibility"`
	Description  string              `json:"description"`
}

// definitionsOf shows definitions to who is shown most of values: defaults of others, and
// of secrets, are hidden.
func definitionsOf(all []fleet.Variable, most fleet.Visibility) []variableDefinition {
	out := make([]variableDefinition, 0, len(all))
	for _, v := range all {
		if v.Default != nil && v.Shown().HiddenFrom(most) {
			v.Default = new(string(fleet.Hidden))
		}
		out = append(out, variableDefinition{v.Key, v.Type, v.Default, v.Required, v.Validation, v.Scope, v.Visibility, v.Description})
	}
	return out
}

// listVariables are the definitions of a template's variables, as a bare array.
func (a *API) listVariables(c *gin.Context) {
	if h, ok := a.head(c); ok {
		server.ETag(c, h.ModRev)
		c.JSON(http.StatusOK, definitionsOf(h.Variables, server.Shown(c)))
	}
}

// putVariables replaces the definitions of a template's variables: a version.
func (a *API) putVariables(c *gin.Context) {
	var given []fleet.Variable
	if !server.Bind(c, &given) {
		return
	}
	for i := range given {
		if given[i].Scope == "" {
			given[i].Scope = fleet.ScopeGroup
		}
		if given[i].Type == "" {
			given[i].Type = fleet.VariableString
		}
	}
	h, ok := a.head(c)
	if !ok {
		return
	}
	given, problems, err := a.cfg.Operations.SettleDefaults(c.Request.Context(), given, h.Variables, server.Shown(c))
	if err != nil {
		server.Fail(c, err)
		return
	}
	if problems = append(problems, fleet.ValidateVariables(given)...); len(problems) > 0 {
		told := make([]string, 0, len(problems))
		for _, p := range problems[:min(len(problems), 10)] {
			told = append(told, strings.TrimSpace(errs.FieldOf(p)+" "+errs.MessageOf(p)))
		}
		server.Refuse(c, wire.Reply{Status: http.StatusUnprocessableEntity, Code: "VARIABLE_DEFINITION_INVALID", Message: strings.Join(told, "; ")})
		return
	}
	ch, ok := a.changeOf(c, "")
	if !ok {
		return
	}
	_, ok = a.edit(c, ch, "define variables", func(ctx context.Context) (client.Edited, error) {
		return a.cfg.Templates.Define(ctx, ch, given)
	})
	if ok {
		c.JSON(http.StatusOK, definitionsOf(given, server.Shown(c)))
	}
}

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
