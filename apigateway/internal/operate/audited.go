package operate

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"time"

	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store/view"
)

// GroupRecord is what the audit keeps of a group, or of a change of it only the fields that
// differ. Values and passwords that not everybody is shown are Hidden in it.
type GroupRecord struct {
	fleet.GroupSpec
	ManagedBy      string    `json:"managedBy,omitempty"`
	CrashesResetAt time.Time `json:"crashesResetAt,omitzero"`
}

// groupRecords are a group before and after a change; nil where there is none. Of what is
// hidden it can be seen that it changed, and nothing else.
func groupRecords(s *view.Snapshot, from, to *fleet.Group) (before, after any) {
	definers := s.Definers()
	concealed := map[string]fleet.Visibility{}
	record := func(g *fleet.Group) map[string]any {
		if g == nil {
			return nil
		}
		maps.Copy(concealed, g.Conceal(definers.Of(g.Name, s.Whole(g).Spec)))
		return object(GroupRecord{g.Spec, g.ManagedBy, g.CrashesResetAt})
	}
	a, b := record(from), record(to)
	if a != nil && b != nil {
		a, b = changed(a, b)
	}
	for _, shown := range []map[string]any{a, b} {
		hideValues(shown, concealed)
	}
	return orNone(a), orNone(b)
}

// hideValues puts Hidden in place of what of a group's record not everybody is shown.
func hideValues(record map[string]any, concealed map[string]fleet.Visibility) {
	values, _ := record["variables"].(map[string]any)
	for key, value := range values {
		text, _ := value.(string)
		if concealed[key].HiddenFrom(fleet.VisibleToAll) || fleet.IsSealed(text) {
			values[key] = fleet.Hidden
		}
	}
	if channel, ok := record["rcon"].(map[string]any); ok && channel["password"] != nil {
		channel["password"] = fleet.Hidden
	}
}

// nodeRecord is what the audit keeps of the wishes for a node.
func nodeRecord(d fleet.NodeDesired) any {
	return struct {
		Cordoned bool              `json:"cordoned"`
		Deleted  bool              `json:"deleted,omitempty"`
		Labels   map[string]string `json:"labels,omitzero"`
		Room     *fleet.NodeRoom   `json:"room,omitempty"`
	}{d.Cordoned, d.Deleted, d.Labels, d.Room}
}

// quotaRecord is what the audit keeps of a quota.
func quotaRecord(q *fleet.Quota) any {
	if q == nil {
		return nil
	}
	return map[string]any{"selector": q.Selector, "limit": q.Limit, "reserved": q.Reserved}
}

// instanceRecord is what the audit keeps of an instance: what it shall do, and not the values
// it was given.
func instanceRecord(i fleet.Intent) any {
	out := map[string]any{"name": i.Name, "group": i.Group, "desired": i.Desired, "generation": i.Generation}
	if i.RestartPending {
		out["restartPending"] = true
	}
	if i.Frozen {
		out["frozen"] = true
	}
	if i.DiscardsData != 0 {
		out["discardsData"] = i.DiscardsData
	}
	if i.Stop != nil {
		out["stop"] = map[string]any{"force": i.Stop.Force, "reason": i.Stop.Reason, "message": i.Stop.Message}
	}
	return out
}

// secretRecord is what the audit keeps of a secret: nothing of its values.
func secretRecord(one fleet.Secret) any {
	if one.Version == 0 {
		return nil
	}
	return map[string]any{"keys": one.Keys, "version": one.Version}
}

// sourceRecord is what the audit keeps of a source: of its credentials, whether it has some.
func sourceRecord(one fleet.TemplateSource) map[string]any {
	if one.CreatedAt.IsZero() {
		return nil
	}
	out := object(one)
	for _, told := range []string{"name", "sealed", "asked", "confirmed", "by", "createdAt", "updatedAt"} {
		delete(out, told)
	}
	if one.Sealed != nil {
		out["credentials"] = fleet.Hidden
	}
	return out
}

// sourceRecords are a source before and after a change.
func sourceRecords(from, to fleet.TemplateSource) (before, after any) {
	a, b := sourceRecord(from), sourceRecord(to)
	if a == nil || b == nil {
		return orNone(a), orNone(b)
	}
	x, y := changed(a, b)
	if from.Sealed != nil && to.Sealed != nil && !bytes.Equal(from.Sealed, to.Sealed) {
		x["credentials"], y["credentials"] = fleet.Hidden, fleet.Hidden
	}
	return x, y
}

// catalogRecord is what the audit keeps of a platform's entry in the catalog; nil for one
// without versions, which is none.
func catalogRecord(p fleet.CatalogPlatform) map[string]any {
	if len(p.Versions) == 0 {
		return nil
	}
	versions := map[string]any{}
	for _, v := range p.Versions {
		one := object(v)
		delete(one, "version")
		versions[v.Version] = one
	}
	return map[string]any{"recommended": p.Recommended, "managedBy": p.ManagedBy, "versions": versions}
}

// catalogRecords are a platform's entry before and after a change.
func catalogRecords(from, to fleet.CatalogPlatform) (before, after any) {
	a, b := catalogRecord(from), catalogRecord(to)
	if a != nil && b != nil {
		a, b = changed(a, b)
	}
	return orNone(a), orNone(b)
}

// digestRecord is what the audit keeps of a template: which version it is at.
func digestRecord(digest string) any {
	if digest == "" {
		return nil
	}
	return map[string]any{"digest": digest}
}

// changed are those fields in which two objects differ: of objects in them again only
// those, of all else the whole. From, and what is after put in place of before in it, makes to.
func changed(from, to map[string]any) (before, after map[string]any) {
	before, after = map[string]any{}, map[string]any{}
	for name, was := range from {
		is, stays := to[name]
		switch {
		case !stays:
			before[name] = was
		case !reflect.DeepEqual(was, is):
			before[name], after[name] = was, is
			a, inner := was.(map[string]any)
			if b, both := is.(map[string]any); inner && both {
				before[name], after[name] = changed(a, b)
			}
		}
	}
	for name, is := range to {
		if _, was := from[name]; !was {
			after[name] = is
		}
	}
	return before, after
}

// object is a record as JSON has it, numbers exact.
func object(record any) map[string]any {
	out := map[string]any{}
	b, err := json.Marshal(record)
	if err != nil { // records are stored as JSON
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	_ = dec.Decode(&out)
	return out
}

// orNone is nil for the nil map, so that it is told from an object without fields.
func orNone(m map[string]any) any {
	if m == nil {
		return nil
	}
	return m
}
