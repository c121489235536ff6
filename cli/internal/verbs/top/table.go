package top

import (
	"cmp"
	"slices"
	"strings"
)

// table has the objects of a tab: all of them by name, and those that the filter selects in order.
type table struct {
	columns []column
	all     map[string]*item
	order   []*item
	// sort is the index of the column that the order follows, and reverse turns it around.
	sort    int
	reverse bool
	// filter is a lower-case text; empty selects all.
	filter string
	// selected is the name of the selected object, and at where it was last. first is the first visible row.
	selected  string
	at, first int
}

func newTable(columns []column) *table {
	return &table{columns: columns, all: map[string]*item{}}
}

// compare orders items by the sort column and then by name.
func (t *table) compare(a, b *item) int {
	order := t.columns[t.sort].compare(a, b)
	if t.reverse {
		order = -order
	}
	return cmp.Or(order, natural(a.name, b.name))
}

// natural compares names with numbers: lobby-2 is before lobby-10.
func natural(a, b string) int {
	ap, an := number(a)
	bp, bn := number(b)
	return cmp.Or(cmp.Compare(ap, bp), cmp.Compare(an, bn), cmp.Compare(a, b))
}

// number splits a number from the end of a name.
func number(name string) (prefix string, n int) {
	end := len(name)
	for end > 0 && len(name)-end < 9 && name[end-1] >= '0' && name[end-1] <= '9' {
		end--
	}
	for _, digit := range name[end:] {
		n = n*10 + int(digit-'0')
	}
	return name[:end], n
}

// replace sets all objects. They keep the series of those that had their names.
func (t *table) replace(items []*item) {
	old := t.all
	t.all = make(map[string]*item, len(items))
	for _, i := range items {
		i.inherit(old[i.name])
		t.all[i.name] = i
	}
	t.arrange()
}

// inherit takes over the series of the previous version of an item, which may be nil.
func (i *item) inherit(old *item) {
	if old != nil && old.uid == i.uid {
		i.memorySeries, i.playerSeries = old.memorySeries, old.playerSeries
	}
	record(&i.memorySeries, i.memory)
	record(&i.playerSeries, i.players)
}

// arrange filters and sorts all objects.
func (t *table) arrange() {
	t.order = t.order[:0]
	for _, i := range t.all {
		if t.filter == "" || i.matches(t.filter) {
			t.order = append(t.order, i)
		}
	}
	slices.SortFunc(t.order, t.compare)
	t.follow()
}

// put sets one object.
func (t *table) put(i *item) {
	t.take(i.name)
	t.all[i.name] = i
	if t.filter == "" || i.matches(t.filter) {
		at, _ := slices.BinarySearchFunc(t.order, i, t.compare)
		t.order = slices.Insert(t.order, at, i)
	}
	t.follow()
}

// remove removes the object of a name.
func (t *table) remove(name string) {
	t.take(name)
	delete(t.all, name)
	t.follow()
}

// take takes the object of a name out of the order. The object must not have changed since it was put there.
func (t *table) take(name string) {
	i := t.all[name]
	if i == nil {
		return
	}
	if at, found := slices.BinarySearchFunc(t.order, i, t.compare); found {
		t.order = slices.Delete(t.order, at, at+1)
	}
}

// change changes the object of a name, and reports whether there is one.
func (t *table) change(name string, change func(*item)) bool {
	old := t.all[name]
	if old == nil {
		return false
	}
	changed := *old
	change(&changed)
	if t.compare(old, &changed) == 0 && t.filter == "" {
		*old = changed
		return true
	}
	t.put(&changed)
	return true
}

// follow finds the selected object again. If it is gone, the object that is in its place is selected.
func (t *table) follow() {
	if i := t.all[t.selected]; i != nil {
		if at, found := slices.BinarySearchFunc(t.order, i, t.compare); found {
			t.at = at
			return
		}
	}
	t.choose(t.at)
}

// choose selects a row, or the nearest one there is.
func (t *table) choose(at int) {
	t.at = max(min(at, len(t.order)-1), 0)
	if t.selected = ""; len(t.order) > 0 {
		t.selected = t.order[t.at].name
	}
}

// current returns the selected object; nil for an empty table.
func (t *table) current() *item {
	if t.at >= len(t.order) {
		return nil
	}
	return t.order[t.at]
}

// visible returns the rows of a window of that height, which has the selected one.
func (t *table) visible(height int) []*item {
	t.first = max(min(t.first, t.at, len(t.order)-height), t.at-height+1, 0)
	return t.order[t.first:min(t.first+max(height, 0), len(t.order))]
}

// sortBy orders by a column. The same column again reverses the order.
func (t *table) sortBy(column int) {
	if t.sort == column {
		t.reverse = !t.reverse
	} else {
		t.sort, t.reverse = column, t.columns[column].descending
	}
	t.arrange()
}

// setFilter shows only objects that have a text.
func (t *table) setFilter(text string) {
	t.filter = strings.ToLower(text)
	t.arrange()
}
