package clusterops

import (
	"fmt"
	"strings"
)

// several joins the first names of a list.
func several(all []string) string {
	const enough = 10
	if len(all) <= enough {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:enough], ", "), len(all)-enough)
}
