package fleet

// VariableType is what values a template's variable may have.
type VariableType string

// The types of variables.
const (
	VariableString VariableType = "STRING"
	// VariableText is a string that may have several lines, also when it is given at start.
	VariableText VariableType = "TEXT"
	VariableInt  VariableType = "INT"
	VariableBool VariableType = "BOOL"
	VariableEnum VariableType = "ENUM"
	// VariableSecret's value is a reference, which is followed on the node alone.
	VariableSecret VariableType = "SECRET"
)

// VariableScope is who may give a variable its value.
type VariableScope string

// The scopes, each with those before it: a template gives the default, a group its own
// value, and a single start one for its instance.
const (
	ScopeTemplate VariableScope = "TEMPLATE"
	ScopeGroup    VariableScope = "GROUP"
	ScopeInstance VariableScope = "INSTANCE"
)

// Variable is the definition of one placeholder of a template.
type Variable struct {
	Key  string       `json:"key"`
	Type VariableType `json:"type"`
	// Default is its value when nobody gives one; nil: it has none.
	Default *string `json:"defaultValue,omitempty"`
	// Required refuses a start without a value.
	Required   bool          `json:"required,omitempty"`
	Validation VariableRule  `json:"validation,omitzero"`
	Scope      VariableScope `json:"scope"`
	// Visibility is who is shown its value, as the role's name; "" for everybody who may
	// see the template.
	Visibility  string `json:"visibility,omitempty"`
	Description string `json:"description,omitempty"`
}

// VariableRule bounds a variable's values; the zero value allows all of its type.
type VariableRule struct {
	// Regex (RE2) has to match the whole value of a string or text.
	Regex string `json:"regex,omitempty"`
	// Min and Max bound an integer, and the length of a string or text in characters.
	Min *int64 `json:"min,omitempty"`
	Max *int64 `json:"max,omitempty"`
	// EnumValues are the values of an enum.
	EnumValues []string `json:"enumValues,omitempty"`
}
