package editor

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// definitionsFile holds the variable definitions of a template, at the root of an archive.
// It is not a file of the template.
const definitionsFile = ".orrery-variables.json"

// packedDefinitions returns the definitions as an archive holds them. Defaults that a user
// with the visibility most may not see are masked. It returns nil when there are no
// definitions.
func packedDefinitions(defined []content.Variable, most content.Visibility) ([]byte, error) {
	if len(defined) == 0 {
		return nil, nil
	}
	out := slices.Clone(defined)
	for i, v := range out {
		if v.Default != nil && v.Shown().HiddenFrom(most) {
			out[i].Default = new(string(content.Hidden))
		}
	}
	b, err := json.MarshalIndent(out, "", "  ")
	return append(b, '\n'), errs.WrapAs(errs.Internal, "editor.packedDefinitions", err)
}

// takeDefinitions moves the definitions from an archive's file into its manifest. It drops
// the defaults of secrets, and those that were masked in the archive. A required variable
// of scope TEMPLATE whose default is dropped becomes optional, because nothing else could
// set its value. An Invalid error names the wrong definition.
func (w *Writer) takeDefinitions(ctx context.Context, m *content.Manifest) error {
	at := slices.IndexFunc(m.Entries, func(e content.ManifestEntry) bool { return e.Path == definitionsFile && e.Kind == content.FileRegular })
	if at < 0 {
		return nil
	}
	e := m.Entries[at]
	if e.Size > maxDefinitions {
		return errs.Field(definitionsFile, "has %d bytes; at most %d are read", e.Size, maxDefinitions)
	}
	body, err := w.templates.Open(ctx, e.Content())
	if err != nil {
		return err
	}
	defer body.Close()
	var defined []content.Variable
	dec := json.NewDecoder(io.LimitReader(body, maxDefinitions))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&defined); err != nil {
		return errs.Field(definitionsFile, "is no list of definitions of variables: %v", err)
	}
	for i, v := range defined {
		if v.Default != nil && (*v.Default == content.Hidden || v.Type == content.VariableSecret) {
			defined[i].Default = nil
			defined[i].Required = v.Required && v.Scope != content.ScopeTemplate
		}
	}
	if problems := content.ValidateVariables(defined); len(problems) > 0 {
		return errs.Field(definitionsFile, "%s %s", errs.FieldOf(problems[0]), errs.MessageOf(problems[0]))
	}
	m.Entries, m.Variables = slices.Delete(slices.Clone(m.Entries), at, at+1), defined
	return nil
}
