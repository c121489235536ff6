package nodeaccess

import (
	"context"
	"net/http"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/etcdproxy"
	"github.com/orreryhq/orrery/libs/store/keys"
)

// secrets returns the values of an instance on the calling node. The instance's placement decides which
// references the node may ask for.
func (c calls) secrets(r *http.Request, in enroll.SecretsRequest) (out enroll.SecretsAnswer, err error) {
	ctx, node := r.Context(), etcdproxy.NodeOf(r.Context())
	placement, err := store.Get(ctx, c.cfg.Store, keys.Placement(node, in.Instance))
	if errs.Is(err, errs.NotFound) {
		return out, errs.New(errs.Denied, "node %s may not read the secrets of instance %s, which is not placed on it", node, in.Instance)
	}
	if err != nil {
		return out, err
	}
	stored, err := store.Get(ctx, c.cfg.Store, keys.Plan(placement.Plan))
	if err != nil {
		return out, err
	}
	due := compose.SecretRefs(stored.Plan, placement)
	out.Values = map[string]string{}
	records := map[string]content.Secret{}
	for variable, text := range in.Refs {
		if due[variable] != text {
			return out, errs.New(errs.Denied, "node %s may not read %s as the value of %s: the placement of instance %s has another reference", node, text, variable, in.Instance)
		}
		if out.Values[variable], err = c.value(ctx, placement.Group, variable, text, records); err != nil {
			return out, &errs.Error{Op: "nodeaccess.secrets", Kind: errs.KindOf(err), Err: err, Message: variable + ": " + errs.MessageOf(err)}
		}
	}
	return out, nil
}

// value returns the value of one reference. records are the stored secrets that were read before.
func (c calls) value(ctx context.Context, g fleet.GroupName, variable, text string, records map[string]content.Secret) (string, error) {
	ref, err := content.ParseSecretRef(text)
	if err != nil {
		return "", err
	}
	switch ref.Kind {
	case content.SecretSealed:
		return c.cfg.Opener.Sealed(g, variable, ref)
	case content.SecretStored:
		record, ok := records[ref.Of]
		if !ok {
			if record, err = store.Get(ctx, c.cfg.Store, keys.Secret(ref.Of)); err != nil {
				break
			}
			if !record.Selector.Empty() {
				var group fleet.Group
				if group, err = store.Get(ctx, c.cfg.Store, keys.Group(g)); err != nil {
					return "", errs.Wrap("nodeaccess.labels", err)
				}
				if err = record.ForGroup(group.Spec.Labels); err != nil {
					return "", err
				}
			}
			records[ref.Of] = record
		}
		return c.cfg.Opener.Stored(record, ref)
	default:
		return "", errs.New(errs.Invalid, "the node itself has the value of %s", ref)
	}
	if errs.Is(err, errs.NotFound) {
		return "", errs.New(errs.NotFound, "no such secret: store it, and start the instance again")
	}
	return "", err
}
