package resource

import (
	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/libs/errs"
)

// Sizes of the largest page of a list, chosen for clients of PrexorCloud's API.
const (
	LargePage  = 500
	MediumPage = 200
	SmallPage  = 100
)

// InvalidQuery returns a Malformed error about a query parameter.
func InvalidQuery(name, format string, args ...any) error {
	e := errs.Field(name, format, args...)
	e.Kind = errs.Malformed
	return e
}

// DiscardsData reads the query parameter discardData. It returns Malformed for a value other than
// true and false.
func DiscardsData(c *gin.Context) (bool, error) {
	switch said, given := c.GetQuery("discardData"); {
	case !given || said == "false":
		return false, nil
	case said == "true":
		return true, nil
	}
	return false, &errs.Error{Kind: errs.Malformed, Field: "discardData", Message: "discardData must be true or false"}
}
