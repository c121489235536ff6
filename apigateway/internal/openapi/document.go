// Package openapi contains the handwritten OpenAPI 3.1 description of the API and serves it as
// a JSON document and as an HTML page.
//
// Each area has a pair of files: paths/<area>.json has its tag and operations,
// schemas/<area>.json its schemas. Document inserts them into openapi.json and adds the common
// parts: error responses, path parameters, and the operations of alias paths. A path marked
// "x-alone" has no alias. An operation marked "x-later" is not implemented and always fails.
//
// One test compares the document with the registered routes in both directions. The tests of
// the gateway and the end-to-end tests validate every response against it.
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

// area is the content of a file in paths/.
type area struct {
	Tag   tag               `json:"tag"`
	Paths map[string]object `json:"paths"`
}

// tag groups the operations of an area.
type tag struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// aliases maps a path prefix to the prefix whose operations it also serves.
var aliases = map[string]string{
	"/api/v1/instances": "/api/v1/services",
	"/api/proxy":        "/api/plugin",
}

// Document assembles the description for the gateway version. It returns Internal when the
// embedded files are inconsistent.
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
		return &errs.Error{Kind: errs.Internal, Op: "openapi", Message: "cannot read " + name, Err: err}
	}
	return nil
}

func allSchemas() (object, error) {
	all := object{}
	files, err := fs.Glob(sources, "schemas/*.json")
	if err != nil {
		return nil, errs.WrapAs(errs.Internal, "openapi.schemas", err)
	}
	for _, name := range files {
		part := object{}
		if err := read(name, &part); err != nil {
			return nil, err
		}
		for schema, v := range part {
			if all[schema] != nil {
				return nil, errs.New(errs.Internal, "schema %s is defined twice", schema)
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
		return nil, nil, errs.WrapAs(errs.Internal, "openapi.paths", err)
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
					return nil, nil, errs.New(errs.Internal, "path %s is defined twice", served)
				}
				all[served] = completed(served, item, part.Tag.Name, served != p)
			}
		}
	}
	return tags, all, nil
}

// servedAt returns p and its aliases.
func servedAt(p string, item object) []string {
	out := []string{p}
	for alias, base := range aliases {
		if below, ok := strings.CutPrefix(p, base); ok && (below == "" || below[0] == '/') && item["x-alone"] != true {
			out = append(out, alias+below)
		}
	}
	return out
}

// completed returns the operations of a path with the common parts added.
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
		if method == "get" && strings.HasSuffix(p, "}") && op["x-later"] != true { // a single object has an ETag
			responses["304"] = object{"$ref": "#/components/responses/Same"}
		}
		if open, said := op["security"].([]any); method != "get" && (!said || len(open) > 0) {
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

// refusal returns the response component for the errors of a path.
func refusal(p string) string {
	if server.DialectOf(p) == wire.Universe {
		return "UniverseRefused"
	}
	return "Refused"
}

// rest is the name of a path parameter that matches all remaining segments.
const rest = "path"

// inPath returns the parameters of a path.
func inPath(p string) []any {
	out := []any{}
	for _, part := range strings.Split(p, "/") {
		if strings.HasPrefix(part, "{") {
			param := object{"name": strings.Trim(part, "{}"), "in": "path", "required": true, "schema": object{"type": "string"}}
			if param["name"] == rest {
				param["description"] = "The rest of the path, including slashes."
			}
			out = append(out, param)
		}
	}
	return out
}
