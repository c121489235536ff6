// Package openapi has the description of the API (OpenAPI 3.1), written by hand, and serves
// it as a document and as a page for people.
//
// What is described stands in one pair of files for each area: paths/<area>.json has the
// area's tag and operations, schemas/<area>.json its schemas; openapi.json is what they are
// put into. Written once is what all have in common, and added here: the refusals, the
// parameters that stand in a path, and the operations of a path that another path is an alias
// of, unless it stands "x-alone". What is "x-later" is not there yet, and always refused.
//
// A test holds the document against the routes there are, in both directions; others hold each
// live answer of the gateway's tests, and of those from end to end, against it.
package openapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
)

//go:embed openapi.json paths/*.json schemas/*.json
var sources embed.FS

// object is a JSON object of the document.
type object = map[string]any

// area is a file of paths.
type area struct {
	Tag   tag               `json:"tag"`
	Paths map[string]object `json:"paths"`
}

// tag is what operations of an area are listed under.
type tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// aliases are bases of paths that are served as those of another are.
var aliases = map[string]string{
	"/api/v1/instances": "/api/v1/services",
	"/api/proxy":        "/api/plugin",
}

// Document is the whole description, as a JSON object. Internal when the files do not fit
// together. version is the gateway's.
func Document(version string) (map[string]any, error) {
	doc := object{}
	if err := read("openapi.json", &doc); err != nil {
		return nil, err
	}
	info, _ := doc["info"].(object)
	components, _ := doc["components"].(object)
	if info == nil || components == nil {
		return nil, errs.New(errs.Internal, "openapi.json has no info or no components")
	}
	info["version"] = version
	schemas, err := allSchemas()
	if err != nil {
		return nil, err
	}
	tags, paths, err := allPaths()
	if err != nil {
		return nil, err
	}
	components["schemas"], doc["tags"], doc["paths"] = schemas, tags, paths
	return doc, nil
}

func read(name string, into any) error {
	b, err := sources.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return &errs.Error{Kind: errs.Internal, Op: "openapi", Message: name + " cannot be read", Err: err}
	}
	return nil
}

func allSchemas() (object, error) {
	all := object{}
	files, err := fs.Glob(sources, "schemas/*.json")
	if err != nil {
		return nil, errs.As(errs.Internal, "openapi.schemas", err)
	}
	for _, name := range files {
		part := object{}
		if err := read(name, &part); err != nil {
			return nil, err
		}
		for schema, v := range part {
			if all[schema] != nil {
				return nil, errs.New(errs.Internal, "the schema %s is there twice", schema)
			}
			all[schema] = v
		}
	}
	return all, nil
}

func allPaths() ([]any, object, error) {
	tags, all := []any{}, object{}
	files, err := fs.Glob(sources, "paths/*.json")
	if err != nil {
		return nil, nil, errs.As(errs.Internal, "openapi.paths", err)
	}
	for _, name := range files {
		var part area
		if err := read(name, &part); err != nil {
			return nil, nil, err
		}
		tags = append(tags, object{"name": part.Tag.Name, "description": part.Tag.Description})
		for p, item := range part.Paths {
			for _, served := range servedAt(p, item) {
				if all[served] != nil {
					return nil, nil, errs.New(errs.Internal, "the path %s is there twice", served)
				}
				all[served] = completed(served, item, part.Tag.Name, served != p)
			}
		}
	}
	return tags, all, nil
}

// servedAt are all paths under which what is described of one is served.
func servedAt(p string, item object) []string {
	out := []string{p}
	for alias, base := range aliases {
		if below, ok := strings.CutPrefix(p, base); ok && (below == "" || below[0] == '/') && item["x-alone"] != true {
			out = append(out, alias+below)
		}
	}
	return out
}

// completed are the operations of a path with what nobody writes.
func completed(p string, item object, tagName string, alias bool) object {
	out := object{"parameters": inPath(p)}
	for method, v := range item {
		written, ok := v.(object)
		if !ok {
			continue // x-alone
		}
		op := object{"tags": []any{tagName}}
		for k, v := range written {
			op[k] = v
		}
		if alias {
			op["operationId"] = fmt.Sprint(op["operationId"], "Alias")
		}
		responses := object{"default": object{"$ref": "#/components/responses/" + refusal(p)}}
		if method == "get" && strings.HasSuffix(p, "}") && op["x-later"] != true { // a single object, which has an ETag
			responses["304"] = object{"$ref": "#/components/responses/Same"}
		}
		if open, said := op["security"].([]any); method == "post" && (!said || len(open) > 0) {
			given, _ := op["parameters"].([]any)
			op["parameters"] = append(slices.Clip(given), object{"$ref": "#/components/parameters/IdempotencyKey"})
		}
		given, _ := op["responses"].(object)
		for status, r := range given {
			responses[status] = r
		}
		op["responses"] = responses
		out[method] = op
	}
	return out
}

// refusal is the component that describes a path's refusals.
func refusal(p string) string {
	if server.DialectOf(p) == wire.Universe {
		return "UniverseRefused"
	}
	return "Refused"
}

// rest is the parameter that takes the rest of a path.
const rest = "path"

// inPath are the parameters that stand in a path.
func inPath(p string) []any {
	out := []any{}
	for _, part := range strings.Split(p, "/") {
		if strings.HasPrefix(part, "{") {
			param := object{"name": strings.Trim(part, "{}"), "in": "path", "required": true, "schema": object{"type": "string"}}
			if param["name"] == rest {
				param["description"] = "All that follows, with its slashes."
			}
			out = append(out, param)
		}
	}
	return out
}
