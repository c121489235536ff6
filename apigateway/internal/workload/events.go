package workload

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/apigateway/internal/stream/events"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/nodeagent/client"
)

const (
	// maxEvents limits an instance's custom events per second and gateway.
	maxEvents = 20
	// maxMeasures limits how many of an instance's metrics reports per second become events.
	maxMeasures = 2
	// maxPayload limits the payload of an event, in bytes of JSON.
	maxPayload = 16 << 10
)

// event sends a custom event of an instance to all subscribers, on all gateways. It is not stored.
func (a *API) event(c *gin.Context) {
	var b struct {
		Type string          `json:"type"`
		Data json.RawMessage `json:"data"`
	}
	if !bind(c, &b) {
		return
	}
	var err error
	switch {
	case !events.Nameable(b.Type):
		err = errs.Field("type", "must be 1 to 64 of A-Z, a-z, 0-9, _ . : and -, such as MY_PLUGIN:ROUND_OVER")
	case events.Ours(events.Type(b.Type)):
		err = errs.Field("type", "%s is reserved for events of the system: choose another name, such as MY_PLUGIN:%[1]s", b.Type)
	case len(b.Data) > maxPayload:
		err = errs.Field("data", "has %d bytes and may have %d", len(b.Data), maxPayload)
	}
	if err != nil {
		server.Fail(c, err)
		return
	}
	if !allow(c, a.custom, "events") || !a.handOver(c, client.Heartbeat{}) {
		return
	}
	if b.Data == nil {
		b.Data = json.RawMessage("null")
	}
	a.tell(c, events.Type(b.Type), func(i *fleet.Instance) events.Fields {
		return events.Fields{"source": i.Intent.Name, "group": i.Intent.Group, "payload": b.Data, "timestamp": a.cfg.Now().UTC()}
	})
	c.JSON(http.StatusOK, gin.H{"status": "ok"})
}

// tell sends an event about the calling instance.
func (a *API) tell(c *gin.Context, t events.Type, fields func(*fleet.Instance) events.Fields) {
	if i, ok := a.cfg.Operations.Snapshot().Instances.Get(server.OwnInstance(c)); ok {
		a.cfg.Tell(events.Event{Type: t, Group: i.Intent.Group, Fields: fields(i)})
	}
}

// tellMetrics sends a server's metrics as an event.
func (a *API) tellMetrics(c *gin.Context, figures json.RawMessage) {
	if _, ok := a.metrics.Allow(server.OwnInstance(c)); !ok {
		return // drop the event: the agent keeps the figures, and the stream is shared
	}
	a.tell(c, events.InstanceMetrics, func(i *fleet.Instance) events.Fields {
		fields := events.Fields{"instanceId": i.Intent.Name, "uid": i.Intent.ID, "group": i.Intent.Group, "collectedAt": a.cfg.Now().UTC()}
		var measured map[string]json.RawMessage
		_ = json.Unmarshal(figures, &measured) // figures was encoded above
		for name, v := range measured {
			fields[name] = v
		}
		return fields
	})
}
