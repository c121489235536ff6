package main

import (
	"fmt"
	"go/token"
	"io/fs"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// prefix begins the paths of the client.
const prefix = "/api/v1/"

// call is an operation of the client.
type call struct {
	*operation
	area, path, method string
	// tagged reports whether its object has an ETag.
	tagged bool
	// parameters are those of the query and of headers, without their references.
	parameters []*parameter
	answers    answers
}

// goMethod is a method of the client.
type goMethod struct {
	name, comment string
	arguments     []argument
	request       string
	answer        printed
	// pages is the method whose pages an iterator reads; empty for other methods.
	pages string
}

type argument struct{ name, typ string }

// printed is an answer in Go: the helper that calls the operation, and the type argument and the
// result of that.
type printed struct{ helper, element, result string }

// client is what is generated.
type client struct {
	*types
	methods map[string][]goMethod
}

// generate returns the files of the client by name.
func generate(fsys fs.FS) (map[string][]byte, error) {
	doc, err := load(fsys)
	if err != nil {
		return nil, err
	}
	calls, err := callsOf(doc)
	if err != nil {
		return nil, err
	}
	c := &client{
		types:   &types{doc: doc, sent: map[string]bool{}, received: map[string]bool{}, defined: map[string]*definition{}},
		methods: map[string][]goMethod{},
	}
	for _, call := range calls {
		if err := c.markCall(call); err != nil {
			return nil, fmt.Errorf("%s: %w", call.ID, err)
		}
	}
	for _, call := range calls {
		if err := c.add(call); err != nil {
			return nil, fmt.Errorf("%s: %w", call.ID, err)
		}
	}
	return c.print()
}

// callsOf returns the operations that the client has.
func callsOf(doc *document) ([]call, error) {
	var out []call
	for _, area := range doc.areas {
		for _, path := range area.paths {
			if !strings.HasPrefix(path.name, prefix) {
				continue
			}
			calls, err := callsAt(doc, area.name, path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path.name, err)
			}
			out = append(out, calls...)
		}
	}
	return out, nil
}

// emptyArea has the lists of objects that do not exist yet. They are always empty.
const emptyArea = "later"

func callsAt(doc *document, area string, path pair[item]) ([]call, error) {
	var out []call
	tagged := strings.HasSuffix(path.name, "}")
	err := operations(path.value, func(method string, o *operation) error {
		if o.Later || area == emptyArea {
			return nil
		}
		c := call{operation: o, area: area, path: path.name, method: method}
		for _, p := range o.Parameters {
			p, err := doc.parameter(p)
			if err != nil {
				return err
			}
			tagged = tagged || p.Name == "If-Match"
			c.parameters = append(c.parameters, p)
		}
		var err error
		if c.answers, err = answersOf(doc, c); err != nil {
			return err
		}
		if !c.answers.stream {
			out = append(out, c)
		}
		return nil
	})
	for i, c := range out {
		single := strings.HasSuffix(c.path, "}")
		out[i].tagged = tagged && (c.method == "get" || c.method == "put" || c.method == "patch" || c.method == "post" && single)
	}
	return out, err
}

// has reports whether the operation has a parameter.
func (c call) has(name string) bool {
	return slices.ContainsFunc(c.parameters, func(p *parameter) bool { return p.Name == name })
}

// sent returns the media type and the schema of the body; empty if there is none.
func (c call) sent() (media string, s *schema) {
	if c.Body == nil || len(c.Body.Content) == 0 {
		return "", nil
	}
	return c.Body.Content[0].name, c.Body.Content[0].value.Schema
}

func (c *client) markCall(call call) error {
	if media, s := call.sent(); media == jsonMedia && call.method != "patch" {
		if err := c.mark(s, true); err != nil {
			return err
		}
	}
	for _, a := range []*answer{call.answers.real, call.answers.dryRun, call.answers.past} {
		if a == nil {
			continue
		}
		s := a.schema
		if items := c.doc.page(s); items != nil {
			s = items
		}
		if err := c.mark(s, false); err != nil {
			return err
		}
	}
	return nil
}

// add adds the methods of an operation.
func (c *client) add(call call) error {
	name := goName(call.ID)
	arguments, path := pathOf(call.path)
	request := fmt.Sprintf("Request{Method: http.Method%s, Path: %s", strings.ToUpper(call.method[:1])+call.method[1:], path)
	body, comment, err := c.body(call)
	if err != nil {
		return err
	}
	if body.typ != "" {
		arguments = append(arguments, argument{body.name, body.typ})
		request += ", Body: " + body.value
	}
	request += "}"
	plain := goMethod{name: name, comment: methodComment(name, call.operation, comment), arguments: arguments, request: request}
	if fields := parameterFields(call); len(fields) > 0 {
		params := name + "Params"
		if c.defined[params] != nil {
			return fmt.Errorf("type %s is needed twice", params)
		}
		c.defined[params] = &definition{name: params, area: call.area, fields: fields, comment: params + " are the parameters of " + name + ". Fields that are zero are not sent."}
		plain.arguments = append(slices.Clip(arguments), argument{"params", "*" + params})
		plain.request += ".with(params)"
	}
	if plain.answer, err = c.printed(call.answers.real, call, usage{name: name + "Result", origin: "the answer of " + name}); err != nil {
		return err
	}
	if d := c.defined[plain.answer.element]; d != nil && call.tagged && plain.answer.helper == "object" {
		d.tagged = true
	}
	c.methods[call.area] = append(c.methods[call.area], plain)
	c.addIterator(call.area, plain)
	return c.addVariants(call, plain, goMethod{arguments: arguments, request: request})
}

// addIterator adds the iterator over the pages of a method.
func (c *client) addIterator(area string, plain goMethod) {
	if len(plain.arguments) == 0 || !strings.HasPrefix(plain.answer.element, "Page[") {
		return
	}
	element := strings.TrimSuffix(strings.TrimPrefix(plain.answer.element, "Page["), "]")
	name := allOf(plain.name)
	c.methods[area] = append(c.methods[area], goMethod{
		name: name, pages: plain.name, arguments: plain.arguments,
		comment: fmt.Sprintf("%s reads the pages of %s one after another.", name, plain.name),
		answer:  printed{element: element, result: "iter.Seq2[" + element + ", error]"},
	})
}

// addVariants adds the methods for a dry run, and for a state in the past. bare is the method
// without optional parameters.
func (c *client) addVariants(call call, plain, bare goMethod) (err error) {
	if dryRun := call.answers.dryRun; dryRun != nil {
		m := plain
		m.name += "DryRun"
		m.comment = fmt.Sprintf("%s returns what %s would do. It changes nothing.", m.name, plain.name)
		m.request += ".dryRun()"
		if m.answer, err = c.printed(dryRun, call, usage{name: m.name, origin: "the answer of " + m.name}); err != nil {
			return err
		}
		c.methods[call.area] = append(c.methods[call.area], m)
	}
	if past := call.answers.past; past != nil {
		m := bare
		m.name = plain.name + "At"
		m.comment = fmt.Sprintf("%s returns the state at a revision, or at a time such as 2026-01-02T15:04:05Z.", m.name)
		m.arguments = append(slices.Clip(m.arguments), argument{"at", "string"})
		m.request += ".at(at)"
		if m.answer, err = c.printed(past, call, usage{name: m.name + "Result", origin: "the answer of " + m.name}); err != nil {
			return err
		}
		c.methods[call.area] = append(c.methods[call.area], m)
	}
	return nil
}

// printed returns an answer in Go.
func (c *client) printed(a *answer, call call, u usage) (printed, error) {
	switch a.kind {
	case nothing:
		return printed{result: "error"}, nil
	case file:
		return printed{helper: "download", result: "(*Download, error)"}, nil
	}
	u.area = call.area
	if items := c.doc.page(a.schema); items != nil {
		u.name = strings.TrimSuffix(u.name, "Result") + "Item"
		element, err := c.of(items, u)
		page := "Page[" + element.element() + "]"
		return printed{helper: "object", element: page, result: "(*" + page + ", error)"}, err
	}
	typ, err := c.of(a.schema, u)
	if typ.shape == object {
		return printed{helper: "object", element: typ.text, result: "(*" + typ.text + ", error)"}, err
	}
	return printed{helper: "value", element: typ.element(), result: "(" + typ.element() + ", error)"}, err
}

// sentBody is the argument for a body and its value in the request.
type sentBody struct{ name, typ, value string }

// body returns the argument for the body of an operation and a sentence about it.
func (c *client) body(call call) (b sentBody, comment string, err error) {
	media, s := call.sent()
	switch {
	case media == "":
		return b, "", nil
	case media == "multipart/form-data":
		return sentBody{"form", "*Form", "form.content()"}, "", nil
	case media != jsonMedia:
		return sentBody{"content", "*Content", "content"}, "", nil
	case call.method == "patch":
		comment, err = c.patchComment(s)
		return sentBody{"body", "Patch", "body"}, comment, err
	}
	name := goName(call.ID)
	typ, err := c.of(s, usage{name: name + "Request", area: call.area, request: true, origin: "the body of " + name})
	if typ.shape == object {
		return sentBody{"body", "*" + typ.text, "given(body)"}, "", err
	}
	return sentBody{"body", typ.text, "body"}, "", err
}

// patchComment names the fields that a patch may have.
func (c *client) patchComment(s *schema) (string, error) {
	if s.Ref != "" {
		name := referred(s.Ref)
		if c.types.sent[name] {
			return "The body has fields of " + goName(name) + ".", nil
		}
		var err error
		if s, err = c.doc.schema(name); err != nil {
			return "", err
		}
	}
	var fields []string
	for _, p := range s.Properties {
		if !p.value.ReadOnly {
			fields = append(fields, p.name)
		}
	}
	if len(fields) == 0 {
		return "", nil
	}
	return "The body may have these fields: " + strings.Join(fields, ", ") + ".", nil
}

// methodComment is the summary as a sentence, the description, what to know about the body, and the
// permissions, as paragraphs.
func methodComment(name string, o *operation, body string) string {
	parts := []string{sentence(name, o.Summary)}
	if about := strings.TrimSpace(o.Description + " " + body); about != "" {
		parts = append(parts, about)
	}
	switch n := len(o.Permissions); {
	case n == 1:
		parts = append(parts, "It needs the permission "+o.Permissions[0]+".")
	case n > 1:
		parts = append(parts, "It needs the permissions "+strings.Join(o.Permissions[:n-1], ", ")+" and "+o.Permissions[n-1]+".")
	}
	return strings.Join(parts, "\n\n")
}

// pathOf returns the arguments for the parameters of a path, and the Go expression of the path.
func pathOf(path string) (arguments []argument, expression string) {
	var parts []string
	for rest := path; rest != ""; {
		literal, after, found := strings.Cut(rest, "{")
		if literal != "" {
			parts = append(parts, strconv.Quote(literal))
		}
		if !found {
			break
		}
		name, next, _ := strings.Cut(after, "}")
		if rest = next; token.IsKeyword(name) {
			name += "Value"
		}
		arguments = append(arguments, argument{name, "string"})
		parts = append(parts, "url.PathEscape("+name+")")
	}
	return arguments, strings.Join(parts, " + ")
}

// parameterFields are the fields of the optional parameters of an operation.
func parameterFields(c call) []field {
	var out []field
	for _, p := range c.parameters {
		if p.Name == dryRunParameter || p.Name == pastParameter && c.answers.past != nil {
			continue
		}
		out = append(out, field{
			name: goName(p.Name), typ: parameterType(p.Schema),
			tag: fmt.Sprintf("`%s:%q`", p.In, p.Name), comment: parameterComment(p),
		})
	}
	return out
}

func parameterComment(p *parameter) string {
	comment := p.Description
	if s := p.Schema; s != nil && len(s.Default) > 0 && string(s.Default) != "false" && !strings.Contains(comment, "efault") {
		comment += " The default is " + string(s.Default) + "."
	}
	if p.Required {
		comment += " It is required."
	}
	return strings.TrimSpace(comment)
}

// parameterType is the type of a parameter, whose zero value is not sent. It is a pointer if that
// would not mean the same as sending the zero value.
func parameterType(s *schema) string {
	typ, zero := "string", `""`
	switch {
	case s == nil || len(s.Type) == 0:
	case s.Type[0] == "integer":
		typ, zero = "int", "0"
	case s.Type[0] == "number":
		typ, zero = "float64", "0"
	case s.Type[0] == "boolean":
		typ, zero = "bool", "false"
	}
	accepted := typ != "string" && (s.Minimum == nil || *s.Minimum <= 0)
	if accepted && len(s.Default) > 0 && string(s.Default) != zero {
		return "*" + typ
	}
	return typ
}

// page returns the schema of the elements of a page; nil if s is not a page.
func (d *document) page(s *schema) *schema {
	if s != nil && s.Ref != "" {
		s = d.schemas[referred(s.Ref)]
	}
	if s == nil {
		return nil
	}
	for _, field := range []string{"data", "page", "pageSize", "total"} {
		if s.Properties.get(field) == nil {
			return nil
		}
	}
	return s.Properties.get("data").Items
}

// same reports whether two answers are the same.
func (a *answer) same(b *answer) bool {
	return a.kind == b.kind && reflect.DeepEqual(a.schema, b.schema)
}
