package events

import (
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/store/view"
)

// ResourceChanged reports that an object without its own event type was created, changed or deleted.
const ResourceChanged Type = "RESOURCE_CHANGED"

// resources maps the kinds of ResourceChanged to the permission to see them, which is the one to read
// the object.
var resources = map[string]account.Permission{
	"user":            auth.UsersView,
	"role":            auth.RolesView,
	"binding":         auth.RolesView,
	"api-token":       auth.TokensView,
	"join-token":      auth.TokensView,
	"signing-keys":    auth.SystemSettings,
	"secret":          auth.SystemSettings,
	"sealing-key":     auth.SystemSettings,
	"quota":           auth.QuotasView,
	"catalog":         auth.CatalogView,
	"template-source": auth.TemplatesView,
	"node":            auth.NodesView,
	"schedule":        auth.GroupsView,
	"overlay":         auth.GroupsView,
	"notice":          auth.SystemSettings,
}

// ignoredActions are audited actions that do not change the object or have their own event type.
var ignoredActions = map[string]bool{
	"auth.logout": true, "auth.lockout": true, "auth.password-reset.request": true,
	"node.cordon": true, "node.uncordon": true, "node.drain": true, "node.undrain": true, "node.drain.complete": true, "node.shutdown": true, "node.cache.warm": true, "schedule.run": true, "notice.test": true,
}

// audited creates the event of a change from its audit entry, which is in the same transaction. Every
// change therefore has one event with its own revision, even for records that are not in the view. The
// event does not contain the change itself.
func (t *translator) audited(c view.Change) {
	e := record[account.AuditSlip](c.After)
	if e == nil || c.Before != nil {
		return
	}
	needs, ok := resources[e.ResourceType]
	if !ok || ignoredActions[e.Action] {
		return
	}
	t.store(Event{Type: ResourceChanged, Needs: needs, Fields: Fields{
		"kind": e.ResourceType, "name": e.ResourceID, "action": verb(e.Action),
	}})
}

// verb returns an audit action without the kind of object.
func verb(action string) string {
	return action[strings.IndexByte(action, '.')+1:]
}
