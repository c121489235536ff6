package main

import (
	"fmt"
	"slices"
	"strings"
)

const (
	jsonMedia   = "application/json"
	streamMedia = "text/event-stream"

	// dryRunParameter selects the answer of a dry run.
	dryRunParameter = "dryRun"
	// pastParameter selects the answer about the past, if the operation has one.
	pastParameter = "at"
)

// answers are the successful answers of an operation.
type answers struct {
	real *answer
	// dryRun is nil if there is no dry run.
	dryRun *answer
	// past is the answer for the parameter at; nil if that does not change the kind of the answer.
	past *answer
	// stream marks an operation that answers with a stream or a WebSocket, or sends a browser on.
	stream bool
}

type answer struct {
	kind   answerKind
	schema *schema
}

type answerKind int

const (
	nothing answerKind = iota
	value
	// file is an answer that is not JSON.
	file
)

// answersOf reads the responses of an operation.
func answersOf(doc *document, c call) (answers, error) {
	var first, other []*answer // of status 200, and of other statuses
	for _, r := range c.Responses {
		if r.name == "101" || r.name == "302" {
			return answers{stream: true}, nil
		}
		if !strings.HasPrefix(r.name, "2") {
			continue
		}
		response := &r.value
		if response.Ref != "" {
			if response = doc.responses[referred(response.Ref)]; response == nil {
				return answers{}, fmt.Errorf("%s does not exist", r.value.Ref)
			}
		}
		list := answersIn(response)
		if list == nil {
			return answers{stream: true}, nil
		}
		if r.name == "200" {
			first = append(first, list...)
		} else {
			other = append(other, list...)
		}
	}
	if len(first)+len(other) == 0 {
		return answers{}, fmt.Errorf("%s %s has no successful response", c.method, c.path)
	}
	switch {
	case c.has(dryRunParameter):
		return separateDryRun(doc, first, other), nil
	case c.has(pastParameter) && len(first) == 2:
		return separatePast(doc, first), nil
	}
	return answers{real: joined(doc, append(first, other...))}, nil
}

// answersIn returns the answers of a response: one for each schema that it may have. It returns none
// for a stream.
func answersIn(r *response) []*answer {
	if len(r.Content) == 0 {
		return []*answer{{kind: nothing}}
	}
	first := r.Content[0]
	switch {
	case first.name == streamMedia:
		return nil
	case first.name != jsonMedia:
		return []*answer{{kind: file}}
	case first.value.Schema == nil || len(first.value.Schema.OneOf) == 0:
		return []*answer{{kind: value, schema: first.value.Schema}}
	}
	var out []*answer
	for _, s := range first.value.Schema.OneOf {
		out = append(out, &answer{kind: value, schema: s})
	}
	return out
}

// separateDryRun tells the answer of a dry run from the real one: by its schema, or because only a
// dry run answers 200.
func separateDryRun(doc *document, first, other []*answer) answers {
	var real, dry []*answer
	for _, a := range first {
		if len(first) == 1 && len(other) > 0 || doc.dryRun(a.schema) {
			dry = append(dry, a)
		} else {
			real = append(real, a)
		}
	}
	real = append(real, other...)
	if len(dry) == 0 {
		dry = real
	}
	if len(real) == 0 {
		real = dry
	}
	return answers{real: joined(doc, real), dryRun: joined(doc, dry)}
}

// dryRun reports whether only dry runs answer with s.
func (d *document) dryRun(s *schema) bool {
	if s == nil {
		return false
	}
	if s.Ref == "" {
		return s.requires(dryRunParameter)
	}
	name := referred(s.Ref)
	target := d.schemas[name]
	return strings.HasSuffix(name, "DryRun") || target != nil && target.requires(dryRunParameter)
}

// separatePast tells the page of an operation from the answer about the past.
func separatePast(doc *document, list []*answer) answers {
	if doc.page(list[0].schema) == nil {
		slices.Reverse(list)
	}
	return answers{real: list[0], past: list[1]}
}

// joined returns one answer for several: the page among them, or their union.
func joined(doc *document, list []*answer) *answer {
	var out []*answer
	for _, a := range list {
		if doc.page(a.schema) != nil {
			return a
		}
		if a.kind != nothing && !slices.ContainsFunc(out, a.same) {
			out = append(out, a)
		}
	}
	switch len(out) {
	case 0:
		return list[0]
	case 1:
		return out[0]
	}
	union := &answer{kind: value, schema: &schema{}}
	for _, a := range out {
		union.schema.OneOf = append(union.schema.OneOf, a.schema)
	}
	return union
}
