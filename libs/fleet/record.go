package fleet

import (
	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Placements and allocs are written and read more often than all other records together. Their
// JSON is encoded and decoded here, with the same bytes as encoding/json. Records that are not
// plain (a character to escape, a field out of order) return false and are left to encoding/json.

// AppendRecord appends the placement's JSON. If it is not plain, it appends nothing and returns
// false.
func (p Placement) AppendRecord(b []byte) ([]byte, bool) {
	w := record.Writer{B: b, Plain: true}
	w.Text(`{"instance":`, string(p.Instance))
	w.Text(`,"name":`, p.Name)
	w.Text(`,"group":`, string(p.Group))
	w.Text(`,"node":`, string(p.Node))
	w.Number(`,"generation":`, p.Generation)
	w.Text(`,"plan":`, p.Plan)
	if p.DataUUID != "" {
		w.Text(`,"dataUUID":`, p.DataUUID)
	}
	w.Raw(`,"resources":{`)
	separator := ""
	for _, part := range [...]struct {
		name  string
		value int
	}{{`"memoryMiB":`, p.Resources.MemoryMiB}, {`"cpu":`, p.Resources.CPU}, {`"diskMiB":`, p.Resources.DiskMiB}} {
		if part.value != 0 {
			w.Raw(separator)
			w.Number(part.name, int64(part.value))
			separator = ","
		}
	}
	w.Number(`},"port":`, int64(p.Port))
	record.AppendMap(&w, `,"ports":`, p.Ports, func(v int) { w.Number("", int64(v)) })
	if p.Alone {
		w.Raw(`,"alone":true`)
	}
	record.AppendMap(&w, `,"values":`, p.Values, func(v string) { w.Text("", v) })
	w.Number(`,"epoch":`, p.Epoch)
	w.Time(`,"placedAt":`, p.PlacedAt)
	if p.FromRevision != 0 {
		w.Number(`,"fromRevision":`, p.FromRevision)
	}
	w.Numbers(`,"score":`, string(p.Score))
	w.Raw("}")
	if !w.Plain {
		return b, false
	}
	return w.B, true
}

// ParseRecord decodes what AppendRecord wrote. It returns false for anything else.
func (p *Placement) ParseRecord(b []byte) bool {
	var out Placement
	r := record.Reader{Rest: string(b), Plain: true}
	out.Instance = InstanceID(r.Text(`{"instance":`))
	out.Name = r.Text(`,"name":`)
	out.Group = GroupName(r.Text(`,"group":`))
	out.Node = NodeID(r.Text(`,"node":`))
	out.Generation = r.Number(`,"generation":`)
	out.Plan = r.Text(`,"plan":`)
	if r.Found(`,"dataUUID":`) {
		out.DataUUID = r.Text("")
	}
	r.Raw(`,"resources":{`)
	separator := ""
	for _, part := range [...]struct {
		name  string
		value *int
	}{{`"memoryMiB":`, &out.Resources.MemoryMiB}, {`"cpu":`, &out.Resources.CPU}, {`"diskMiB":`, &out.Resources.DiskMiB}} {
		if r.Found(separator + part.name) {
			*part.value = int(r.Number(""))
			separator = ","
		}
	}
	out.Port = int(r.Number(`},"port":`))
	out.Ports = record.ParseMap(&r, `,"ports":`, func() int { return int(r.Number("")) })
	out.Alone = r.Found(`,"alone":true`)
	out.Values = record.ParseMap(&r, `,"values":`, func() string { return r.Text("") })
	out.Epoch = r.Number(`,"epoch":`)
	out.PlacedAt = r.Time(`,"placedAt":`)
	if r.Found(`,"fromRevision":`) {
		out.FromRevision = r.Number("")
	}
	if r.Found(`,"score":`) {
		out.Score = Scores(r.Numbers())
	}
	r.Raw("}")
	if !r.Plain || r.Rest != "" {
		return false
	}
	*p = out
	return true
}

// AppendRecord appends the alloc's JSON. It returns false if it is not plain.
func (a Alloc) AppendRecord(b []byte) ([]byte, bool) {
	w := record.Writer{B: b, Plain: true}
	w.Text(`{"node":`, string(a.Node))
	w.Raw("}")
	if !w.Plain {
		return b, false
	}
	return w.B, true
}

// ParseRecord decodes what AppendRecord wrote. It returns false for anything else.
func (a *Alloc) ParseRecord(b []byte) bool {
	r := record.Reader{Rest: string(b), Plain: true}
	node := NodeID(r.Text(`{"node":`))
	r.Raw("}")
	if !r.Plain || r.Rest != "" {
		return false
	}
	*a = Alloc{Node: node}
	return true
}

// Blank replaces a damaged alloc with one that names no node.
func (a *Alloc) Blank() { *a = Alloc{} }
