package fleet

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

func TestEveryReasonHasText(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	declared := map[Reason]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		r := Reason(value)
		if "Reason"+value != spec.Names[0].Name {
			t.Errorf("%s is spelt %q", spec.Names[0].Name, value)
		}
		if declared[r] {
			t.Errorf("%s is declared twice", r)
		}
		declared[r] = true
		if reasonText[r] == "" {
			t.Errorf("%s has no sentence", r)
		}
		return true
	})
	if len(declared) < 30 || len(declared) != len(reasonText) {
		t.Errorf("%d reasons are declared, %d have a sentence", len(declared), len(reasonText))
	}
	if got := Reason("New").Text(); got != "New" {
		t.Errorf("an unknown reason reads %q", got)
	}
}
