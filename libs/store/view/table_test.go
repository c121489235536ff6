package view

import (
	"reflect"
	"strings"
	"testing"
)

func TestAViewOfAllKindsHasEveryTable(t *testing.T) {
	s := reflect.ValueOf(New(nil, nil).Snapshot()).Elem()
	for field, value := range s.Fields() {
		if strings.HasPrefix(value.Type().Name(), "Table[") && value.IsZero() {
			t.Errorf("no kind in kindTables has the table %s", field.Name)
		}
	}
}

func TestAViewHasOnlyTheTablesOfItsKinds(t *testing.T) {
	s := New(nil, nil, KindGroup, KindNode).Snapshot()
	if s.Groups.Len() != 0 || s.Nodes.Len() != 0 {
		t.Error("the tables of followed kinds are not empty")
	}
	defer func() {
		if recover() == nil {
			t.Error("reading the users of a view that does not follow them did not panic")
		}
	}()
	s.Users.Len()
}
