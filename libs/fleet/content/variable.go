package content

// VariableType is the type of a template variable.
type VariableType string

// The types of variables.
const (
	VariableString VariableType = "STRING"
	// VariableText is a string that may have several lines, even if it is given at start.
	VariableText VariableType = "TEXT"
	VariableInt  VariableType = "INT"
	VariableBool VariableType = "BOOL"
	VariableEnum VariableType = "ENUM"
	// VariableSecret has a reference as its value. Only the node resolves it.
	VariableSecret VariableType = "SECRET"
)

// VariableScope says who may set a variable.
type VariableScope string

// The scopes. Each includes those before it: the template sets the default, the group overrides
// it, and a start overrides both for one instance.
const (
	ScopeTemplate VariableScope = "TEMPLATE"
	ScopeGroup    VariableScope = "GROUP"
	ScopeInstance VariableScope = "INSTANCE"
)

// Variable is the definition of one placeholder of a template.
type Variable struct {
	Key  string       `json:"key"`
	Type VariableType `json:"type"`
	// Default is the value if none is set, or nil.
	Default *string `json:"defaultValue,omitempty"`
	// Required refuses a start without a value.
	Required   bool          `json:"required,omitempty"`
	Validation VariableRule  `json:"validation,omitzero"`
	Scope      VariableScope `json:"scope"`
	// Visibility is the role that may see the value. Empty means everyone who may see the
	// template.
	Visibility  string `json:"visibility,omitempty"`
	Description string `json:"description,omitempty"`
}

// VariableRule restricts the values of a variable. The zero value allows all values of its type.
type VariableRule struct {
	// Regex (RE2) must match the whole value of a string or text.
	Regex string `json:"regex,omitempty"`
	// Min and Max limit an integer, or the length of a string or text in characters.
	Min *int64 `json:"min,omitempty"`
	Max *int64 `json:"max,omitempty"`
	// EnumValues are the values of an enum.
	EnumValues []string `json:"enumValues,omitempty"`
}
