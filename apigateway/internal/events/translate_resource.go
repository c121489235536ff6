package events

import (
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ResourceChanged says that something was made, changed or deleted that has no type of its own.
const ResourceChanged Type = "RESOURCE_CHANGED"

// resources are the kinds of which ResourceChanged tells, and who may hear of each: whoever
// may read it.
var resources = map[string]fleet.Permission{
	"user":            auth.UsersView,
	"role":            auth.RolesView,
	"api-token":       auth.TokensView,
	"join-token":      auth.TokensView,
	"signing-keys":    auth.SystemSettings,
	"secret":          auth.SystemSettings,
	"quota":           auth.QuotasView,
	"catalog":         auth.CatalogView,
	"template-source": auth.TemplatesView,
	"node":            auth.NodesView,
}

// untold are what is done with these that changes nothing of them, or has a type of its own.
var untold = map[string]bool{
	"auth.logout": true, "auth.lockout": true, "auth.password-reset.request": true,
	"node.cordon": true, "node.uncordon": true, "node.shutdown": true, "node.cache.warm": true,
}

// audited tells of a change by its entry in the audit, which is written in its transaction:
// so each is told once, with its own revision, and of a record that no view follows too. What
// was changed of it stands in no event.
func (t *translator) audited(c view.Change) {
	e := record[fleet.AuditSlip](c.After)
	if e == nil || c.Before != nil {
		return
	}
	needs, told := resources[e.ResourceType]
	if !told || untold[e.Action] {
		return
	}
	t.store(Event{Type: ResourceChanged, Needs: needs, Fields: Fields{
		"kind": e.ResourceType, "name": e.ResourceID, "action": verb(e.Action),
	}})
}

// verb is what an entry of the audit says was done, without what it was done to.
func verb(action string) string {
	return action[strings.IndexByte(action, '.')+1:]
}
