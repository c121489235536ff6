package rest

import (
	"fmt"
	"strings"
)

// written is the path under which a client wrote a field of the fleet's, where a
// field can be written in two ways. A patch that does not mention it is told the usual one.
func (f groupFields) written(field string) string {
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
