package groups

import (
	"fmt"
	"strings"
)

// writtenPath returns the path under which the client sent a field that it can write in two forms. If
// the client did not send it, writtenPath returns the common form.
func (f groupFields) writtenPath(field string) string {
	if rest, ok := strings.CutPrefix(field, "templates.allOf"); ok && f.TemplateInstallationConfig == nil {
		return "templates" + rest
	}
	if rest, ok := strings.CutPrefix(field, "templates."); ok {
		return "templateInstallationConfig." + rest
	}
	if f.AdditionalPorts == nil {
		return field
	}
	for i, p := range *f.AdditionalPorts {
		at := fmt.Sprintf("additionalPorts[%d].", i)
		if p.Port != nil && strings.HasPrefix(field, at) {
			return at + "port"
		}
	}
	return field
}
