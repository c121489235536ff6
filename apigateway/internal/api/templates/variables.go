package templates

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/templateops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// variableDefinition defines a variable of a template. All fields are set in answers.
type variableDefinition struct {
	Key          string                `json:"key"`
	Type         content.VariableType  `json:"type"`
	DefaultValue *string               `json:"defaultValue"`
	Required     bool                  `json:"required"`
	Validation   content.VariableRule  `json:"validation"`
	Scope        content.VariableScope `json:"scope"`
	Visibility   string                `json:"visibility"`
	Description  string                `json:"description"`
}

// definitionsOf shows definitions. It hides the defaults of secrets and of variables above the
// caller's visibility.
func definitionsOf(all []content.Variable, most content.Visibility) []variableDefinition {
	out := make([]variableDefinition, 0, len(all))
	for _, v := range all {
		if v.Default != nil && v.Shown().HiddenFrom(most) {
			v.Default = new(string(content.Hidden))
		}
		out = append(out, variableDefinition{v.Key, v.Type, v.Default, v.Required, v.Validation, v.Scope, v.Visibility, v.Description})
	}
	return out
}

// listVariables lists the variable definitions of a template as a bare array.
func (a *API) listVariables(c *gin.Context) {
	if h, ok := a.head(c); ok {
		server.ETag(c, h.ModRev)
		c.JSON(http.StatusOK, definitionsOf(h.Variables, server.Shown(c)))
	}
}

// putVariables replaces the variable definitions of a template and publishes a version.
func (a *API) putVariables(c *gin.Context) {
	var given []content.Variable
	if !server.Bind(c, &given) {
		return
	}
	for i := range given {
		if given[i].Scope == "" {
			given[i].Scope = content.ScopeGroup
		}
		if given[i].Type == "" {
			given[i].Type = content.VariableString
		}
	}
	ch, ok := a.changeOf(c, "")
	if !ok {
		return
	}
	settled, at, problems, err := a.settleVariables(c, ch, given)
	if err != nil {
		server.Fail(c, err)
		return
	}
	if len(problems) > 0 {
		told := make([]string, 0, len(problems))
		for _, p := range problems[:min(len(problems), 10)] {
			told = append(told, strings.TrimSpace(errs.FieldOf(p)+" "+errs.MessageOf(p)))
		}
		server.Refuse(c, wire.Reply{Status: http.StatusUnprocessableEntity, Code: "VARIABLE_DEFINITION_INVALID", Message: strings.Join(told, "; ")})
		return
	}
	_, ok = a.edit(c, ch, "define variables", func(ctx context.Context) (client.Edited, error) {
		for try := 1; ; try++ {
			done, err := a.cfg.Templates.Define(ctx, at, settled)
			if err == nil || errs.FieldOf(err) != client.Stale || ch.Revision != 0 || ch.IfMatch != "" || try == defineTries {
				return done, err
			}
			if settled, at, problems, err = a.settleVariables(c, ch, given); err != nil {
				return done, err
			}
			if len(problems) > 0 {
				return done, problems[0]
			}
		}
	})
	if ok {
		c.JSON(http.StatusOK, definitionsOf(settled, server.Shown(c)))
	}
}

// defineTries bounds the retries after concurrent changes of the head.
const defineTries = 5

// settleVariables computes the definitions to store from the given ones. It binds the change to the
// head or draft that it read.
func (a *API) settleVariables(c *gin.Context, ch client.Change, given []content.Variable) (settled []content.Variable, at client.Change, problems []error, err error) {
	present, rev, err := a.presentVariables(c, ch)
	if err != nil {
		return nil, ch, nil, err
	}
	if ch.Revision == 0 {
		ch.Revision = rev
	}
	settled, problems, err = a.cfg.Operations.SettleDefaults(c.Request.Context(), given, present, server.Shown(c))
	return settled, ch, append(problems, content.ValidateVariables(settled)...), err
}

// presentVariables returns the definitions that a change replaces, and the revision of their head
// or draft. The revision is 0 for a new draft.
func (a *API) presentVariables(c *gin.Context, ch client.Change) ([]content.Variable, int64, error) {
	if ch.Draft {
		d, err := a.draft(c, ch.Ref)
		if err == nil {
			present, err := a.cfg.Templates.Variables(c.Request.Context(), d.Digest)
			return present, d.ModRev, err
		}
		if !errs.Is(err, errs.NotFound) {
			return nil, 0, err
		}
	}
	var head content.TemplateHead
	err := txn.InTime(c.Request.Context(), func(ctx context.Context) (err error) {
		head, err = store.Get(ctx, a.cfg.Operations.Store, keys.TemplateHead(ch.Ref))
		return err
	})
	switch {
	case errs.Is(err, errs.NotFound):
		return nil, 0, templateops.NoTemplate(a.cfg.Operations.Snapshot(), ch.Ref)
	case err != nil || ch.Draft:
		return head.Variables, 0, err
	}
	return head.Variables, head.ModRev, nil
}

// usedVariable is a placeholder in a template's files.
type usedVariable struct {
	Key string `json:"key"`
	// Defined is true if the template defines it, BuiltIn if every instance has it.
	Defined bool         `json:"defined"`
	BuiltIn bool         `json:"builtIn"`
	Files   []client.Use `json:"files"`
}

// scanVariables lists the placeholders in a template's files as a bare array.
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
	out := make([]usedVariable, 0, len(found.Keys))
	for _, k := range found.Keys {
		out = append(out, usedVariable{
			Key: k.Key, Files: k.Uses, BuiltIn: configfile.BuiltIn(k.Key),
			Defined: slices.ContainsFunc(h.Variables, func(v content.Variable) bool { return v.Key == k.Key }),
		})
	}
	warnPartial(c, found.Partial)
	c.JSON(http.StatusOK, out)
}
