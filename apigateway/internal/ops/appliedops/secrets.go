package appliedops

import (
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/notice"
	"github.com/orreryhq/orrery/libs/store/view"
)

// withoutSecrets replaces secret values of a document by what a read of the object shows. Invalid for a
// field that no read shows at all.
func withoutSecrets(s *view.Snapshot, kind applied.Kind, name string, doc map[string]any) error {
	switch kind {
	case applied.Group:
		hideGroupValues(s, fleet.GroupName(name), doc)
	case applied.Notice:
		if url, ok := doc["url"].(string); ok {
			doc["url"] = notice.Shown(url)
		}
		return refuseWriteOnly(doc, "secret")
	case applied.TemplateSource:
		return refuseWriteOnly(doc, "credentials")
	case applied.Network, applied.Schedule, applied.Overlay, applied.Quota, applied.Role, applied.Binding, applied.Catalog: // have no secrets
	}
	return nil
}

func refuseWriteOnly(doc map[string]any, field string) error {
	for given := range doc {
		if strings.EqualFold(given, field) {
			return errs.Field("document."+given, "is a secret that no read shows, so it is not stored: leave it out of the document")
		}
	}
	return nil
}

// hideGroupValues hides the RCON password and the variables that not every reader of the group sees.
func hideGroupValues(s *view.Snapshot, name fleet.GroupName, doc map[string]any) {
	if rcon, ok := doc["rcon"].(map[string]any); ok && rcon["password"] != nil && rcon["password"] != "" {
		rcon["password"] = content.Hidden
	}
	values, ok := doc["variableValues"].(map[string]any)
	g, exists := s.Groups.Get(name)
	if !ok || !exists {
		return
	}
	concealed := compose.Conceal(g, s.Definers().Of(name, s.Whole(g).Spec))
	for key, value := range values {
		text, _ := value.(string)
		if concealed[key].HiddenFrom(content.VisibleToAll) || content.IsSealed(text) {
			values[key] = content.Hidden
		}
	}
}
