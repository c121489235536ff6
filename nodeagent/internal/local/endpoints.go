package local

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/wire"
	"github.com/orreryhq/orrery/nodeagent/client"
	"github.com/orreryhq/orrery/nodeagent/internal/api"
)

// orderTimeout bounds how long an instance may take to journal an order.
const orderTimeout = 5 * time.Second

func listInstances(c Config) http.Handler {
	return api.Serve(func(*http.Request) (any, error) {
		now := time.Now()
		out := client.Instances{Instances: []client.Instance{}}
		for _, l := range sorted(c.Instances.Live()) {
			if l.Status.State != "" { // otherwise it was only ordered, not placed
				out.Instances = append(out.Instances, api.View(l, now))
			}
		}
		return out, nil
	})
}

func readAgent(c Config, started time.Time) http.Handler {
	return api.Serve(func(*http.Request) (any, error) {
		contact := c.Contact(time.Now())
		a := client.Agent{
			Node: c.Node, DataDir: c.DataDir, Version: c.Version, PID: os.Getpid(), StartedAt: started,
			Instances: c.Instances.Instances(), Orphans: c.Instances.Orphans(), LocalRestarts: c.Instances.LocalRestarts(),
			Etcd: client.Etcd{
				Reachable: contact.Reachable, Since: contact.Since, LastContact: contact.Last,
				SessionAlive: contact.Epoch != 0, Epoch: contact.Epoch, Cluster: contact.Cluster, Problem: contact.Problem,
			},
		}
		for _, l := range c.Instances.Live() {
			if l.Held {
				a.Held++
			}
		}
		a.Unwritten, a.UnwrittenSince = c.Instances.Unwritten()
		return a, nil
	})
}

func stop(c Config) http.Handler {
	return api.Serve(func(r *http.Request) (any, error) {
		var which client.Stop
		if err := wire.DecodeJSON(r.Body, 0, &which); err != nil {
			return nil, err
		}
		all := c.Instances.Live()
		chosen, err := selectInstances(all, which)
		if err != nil {
			return nil, err
		}
		by, now := actor(r.Context()), time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), orderTimeout) // a canceled request must not stop only some of them
		defer cancel()
		out := client.Stopping{Instances: []client.Instance{}, Note: note(c.Contact(now).Reachable)}
		for _, id := range chosen {
			stopping := c.Instances.StopLocally(ctx, id, by, which.Force)
			if stopping == nil {
				out.Instances = append(out.Instances, api.View(all[id], now))
				continue
			}
			err = cmp.Or(err, stopping)
			out.Problems = append(out.Problems, client.Problem{ID: id, Name: all[id].Name, Message: errs.MessageOf(stopping)})
		}
		c.Log.Warn("instances stopped on the node itself", "by", by, "instances", chosen, "force", which.Force, "problems", len(out.Problems))
		if len(out.Instances) == 0 && err != nil {
			return nil, err
		}
		return out, nil
	})
}

// note says how the control plane will react to a local stop.
func note(reachable bool) string {
	if reachable {
		return "the control plane is reachable: the group's minimum will start another instance at once, unless you scale it down there"
	}
	return "the group's minimum will start another instance when the control plane is back, unless you scale it down"
}
