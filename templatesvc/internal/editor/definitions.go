package editor

import (
	"context"
	"encoding/json"
	"io"
	"slices"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
)

// definitionsFile carries the definitions of a template's variables at the root of an archive.
// It is no file of the template.
const definitionsFile = ".orrery-variables.json"

// packedDefinitions are definitions as an archive has them, for who is shown most of values.
// nil where there are none.
func packedDefinitions(defined []fleet.Variable, most fleet.Visibility) ([]byte, error) {
	if len(defined) == 0 {
		return nil, nil
	}
	out := slices.Clone(defined)
	for i, v := range out {
		if v.Default != nil && v.Shown().HiddenFrom(most) {
			out[i].Default = new(string(fleet.Hidden))
		}
	}
	b, err := json.MarshalIndent(out, "", "  ")
	return append(b, '\n'), errs.As(errs.Internal, "editor.packedDefinitions", err)
}

// takeDefinitions makes the definitions that an archive brought those of its manifest, without
// the defaults of secrets and those that were hidden from whoever packed them. What is left
// of a required variable of scope TEMPLATE then is not required: nobody could give it a value. Invalid names
// the definition at fault.
func (w *Writer) takeDefinitions(ctx context.Context, m *fleet.Manifest) error {
	at := slices.IndexFunc(m.Entries, func(e fleet.ManifestEntry) bool { return e.Path == definitionsFile && e.Kind == fleet.FileRegular })
	if at < 0 {
		return nil
	}
	e := m.Entries[at]
	if e.Size > maxDefinitions {
		return errs.Field(definitionsFile, "has %d bytes; at most %d are read", e.Size, maxDefinitions)
	}
	content, err := w.templates.Open(ctx, e.Content())
	if err != nil {
		return err
	}
	defer content.Close()
	var defined []fleet.Variable
	dec := json.NewDecoder(io.LimitReader(content, maxDefinitions))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&defined); err != nil {
		return errs.Field(definitionsFile, "is no list of definitions of variables: %v", err)
	}
	for i, v := range defined {
		if v.Default != nil && (*v.Default == fleet.Hidden || v.Type == fleet.VariableSecret) {
			defined[i].Default = nil
			defined[i].Required = v.Required && v.Scope != fleet.ScopeTemplate
		}
	}
	if problems := fleet.ValidateVariables(defined); len(problems) > 0 {
		return errs.Field(definitionsFile, "%s %s", errs.FieldOf(problems[0]), errs.MessageOf(problems[0]))
	}
	m.Entries, m.Variables = slices.Delete(slices.Clone(m.Entries), at, at+1), defined
	return nil
}
