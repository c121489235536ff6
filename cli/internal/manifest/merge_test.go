package manifest

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func decode(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		applied, live, document, patch string
		conflicts, left                []string
	}{
		"a field of the document is set":                            {`null`, `{"a":1,"b":2}`, `{"a":3}`, `{"a":3}`, nil, nil},
		"the same value changes nothing":                            {`{"a":1}`, `{"a":1.0}`, `{"a":1}`, `{}`, nil, nil},
		"a field that only others set stays":                        {`{"a":1}`, `{"a":1,"b":2}`, `{"a":1}`, `{}`, nil, nil},
		"a removed field gets its default":                          {`{"a":1,"b":2}`, `{"a":1,"b":2}`, `{"a":1}`, `{"b":null}`, nil, nil},
		"a removed field that another writer changed stays":         {`{"a":1,"b":2}`, `{"a":1,"b":5}`, `{"a":1}`, `{}`, nil, []string{"b"}},
		"a field that another writer changed is a conflict":         {`{"a":1}`, `{"a":5}`, `{"a":1}`, `{"a":1}`, []string{"a"}, nil},
		"both made the same change":                                 {`{"a":1}`, `{"a":5}`, `{"a":5}`, `{}`, nil, nil},
		"a field that is new in the document is no conflict":        {`{"b":1}`, `{"a":5,"b":1}`, `{"a":1,"b":1}`, `{"a":1}`, nil, nil},
		"a key of a map is removed, those of others stay":           {`{"env":{"A":"1","B":"2"}}`, `{"env":{"A":"1","B":"2","C":"3"}}`, `{"env":{"A":"1"}}`, `{"env":{"B":null}}`, nil, nil},
		"a whole map is removed, keys of others stay":               {`{"env":{"A":"1"}}`, `{"env":{"A":"1","C":"3"}}`, `{}`, `{"env":{"A":null}}`, nil, nil},
		"a whole map that nobody else uses gets its default":        {`{"env":{"A":"1"}}`, `{"env":{"A":"1"}}`, `{}`, `{"env":null}`, nil, nil},
		"a conflict names the path":                                 {`{"env":{"A":"1"}}`, `{"env":{"A":"9"}}`, `{"env":{"A":"2"}}`, `{"env":{"A":"2"}}`, []string{"env.A"}, nil},
		"a key that another writer removed is a conflict":           {`{"env":{"A":"1"}}`, `{"env":{}}`, `{"env":{"A":"1"}}`, `{"env":{"A":"1"}}`, []string{"env.A"}, nil},
		"lists are compared as a whole":                             {`{"l":[1]}`, `{"l":[1,2]}`, `{"l":[3]}`, `{"l":[3]}`, []string{"l"}, nil},
		"a hidden value is set again and is no conflict":            {`{"p":"***"}`, `{"p":"***"}`, `{"p":"secret"}`, `{"p":"secret"}`, nil, nil},
		"a value that is hidden since is no conflict":               {`{"p":"old"}`, `{"p":"***"}`, `{"p":"secret"}`, `{"p":"secret"}`, nil, nil},
		"large whole numbers keep their precision":                  {`null`, `{"a":9007199254740993}`, `{"a":9007199254740992}`, `{"a":9007199254740992}`, nil, nil},
		"a field that the object does not show is set":              {`null`, `{}`, `{"secret":"x"}`, `{"secret":"x"}`, nil, nil},
		"a removed field that is gone needs no change":              {`{"a":1}`, `{}`, `{}`, `{}`, nil, nil},
		"an object replaces a value, which was changed by somebody": {`{"a":1}`, `{"a":2}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`, []string{"a"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := Merge(decode(t, c.applied), decode(t, c.live), decode(t, c.document))
			if want := decode(t, c.patch); !reflect.DeepEqual(got.Patch, want) {
				t.Errorf("the patch is %v, not %v", got.Patch, want)
			}
			var fields []string
			for _, conflict := range got.Conflicts {
				fields = append(fields, conflict.Field)
			}
			if !slices.Equal(fields, c.conflicts) || !slices.Equal(got.Left, c.left) {
				t.Errorf("conflicts %v, left %v", fields, got.Left)
			}
		})
	}
}

// object generates objects with few names and values, so that versions have much in common. A name
// always has a value of the same type, like a field of the API.
func object(depth int) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		out := map[string]any{}
		for _, name := range []string{"a", "b", "c"} {
			if rapid.Bool().Draw(t, name) {
				out[name] = json.Number(strconv.Itoa(rapid.IntRange(0, 2).Draw(t, "value")))
			}
		}
		if rapid.Bool().Draw(t, "list") {
			out["list"] = []any{rapid.SampledFrom([]string{"x", "y"}).Draw(t, "item")}
		}
		if depth > 0 && rapid.Bool().Draw(t, "inner") {
			out["inner"] = object(depth-1).Draw(t, "object")
		}
		return out
	})
}

// leaves returns the values that are no objects by their paths.
func leaves(prefix string, object map[string]any, into map[string]any) map[string]any {
	for name, value := range object {
		if inner, ok := value.(map[string]any); ok {
			leaves(prefix+name+".", inner, into)
			continue
		}
		into[prefix+name] = value
	}
	return into
}

func TestMergeProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		applied, live, document := object(2).Draw(t, "applied"), object(2).Draw(t, "live"), object(2).Draw(t, "document")
		merged := Merge(applied, live, document)
		result := ApplyPatch(live, merged.Patch)
		was, is, wanted, got := leaves("", applied, map[string]any{}), leaves("", live, map[string]any{}), leaves("", document, map[string]any{}), leaves("", result, map[string]any{})
		var conflicts []string
		for _, c := range merged.Conflicts {
			conflicts = append(conflicts, c.Field)
		}
		for path := range union(was, is, wanted) {
			a, l, d := was[path], is[path], wanted[path]
			inDocument := d != nil
			conflict := inDocument && a != nil && !Equal(a, l) && !Equal(l, d)
			// An object that somebody removed is a conflict of its fields' document, named by their paths.
			if conflict != slices.Contains(conflicts, path) && hasParent(live, path) {
				t.Errorf("%s: applied %v, live %v, document %v: conflict reported: %v", path, a, l, d, !conflict)
			}
			switch {
			case inDocument:
				if !Equal(got[path], d) {
					t.Errorf("%s: the document says %v, the result is %v", path, d, got[path])
				}
			case a != nil && Equal(a, l):
				if got[path] != nil {
					t.Errorf("%s: it left the document, but it is still %v", path, got[path])
				}
			case !Equal(got[path], l):
				t.Errorf("%s: it is not of the document, but changed from %v to %v", path, l, got[path])
			}
		}
	})
}

func hasParent(object map[string]any, path string) bool {
	parts := strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		inner, ok := object[part].(map[string]any)
		if !ok {
			return false
		}
		object = inner
	}
	return true
}

func union(all ...map[string]any) map[string]bool {
	out := map[string]bool{}
	for _, m := range all {
		for name := range m {
			out[name] = true
		}
	}
	return out
}

func TestMergeTwiceChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		applied, live, document := object(2).Draw(t, "applied"), object(2).Draw(t, "live"), object(2).Draw(t, "document")
		result := ApplyPatch(live, Merge(applied, live, document).Patch)
		again := Merge(Project(result, document), result, document)
		if len(again.Patch) != 0 || len(again.Conflicts) != 0 || len(again.Left) != 0 {
			t.Errorf("the second merge is %+v", again)
		}
	})
}
