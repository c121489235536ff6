package logs

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// NodePage has the last records of a node's agent.
type NodePage struct {
	NodeID fleet.NodeID `json:"nodeId"`
	Page
}

// streamOf returns the stream name that a ticket for a node's log is bound to.
func streamOf(id fleet.NodeID) string { return "logs:node:" + string(id) }

// nodeOf returns the node in the path, or NotFound.
func (l *Logs) nodeOf(c *gin.Context) (fleet.NodeID, error) {
	id := fleet.NodeID(c.Param("id"))
	if _, ok := l.cfg.View.Snapshot().Nodes.Get(id); !ok {
		return id, errs.New(errs.NotFound, "there is no such node")
	}
	return id, nil
}

func (l *Logs) listNode(c *gin.Context) {
	q, ok := QueryOf(c, "limit")
	if !ok {
		return
	}
	id, err := l.nodeOf(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out, err := l.Node(c.Request.Context(), id, q)
	if err != nil {
		server.Fail(c, err)
		return
	}
	c.JSON(http.StatusOK, out)
}

// Node returns the last records of a node's agent, or Unavailable if the agent cannot be reached.
func (l *Logs) Node(ctx context.Context, id fleet.NodeID, q Query) (NodePage, error) {
	got, err := l.cfg.Agents.Records(ctx, id, client.RecordQuery{RecordFilter: q.RecordFilter, Limit: q.Limit})
	if err != nil {
		return NodePage{}, err
	}
	if got.Records == nil {
		got.Records = []telemetry.Record{}
	}
	return NodePage{id, Page{Records: got.Records, Size: got.Size, Capacity: got.Capacity, Level: q.Level, Logger: q.Logger}}, nil
}

func (l *Logs) nodeTicket(c *gin.Context) {
	id, err := l.nodeOf(c)
	if err != nil {
		server.Fail(c, err)
		return
	}
	l.issue(c, streamOf(id))
}

// streamNode streams the log of a node's agent.
func (l *Logs) streamNode(c *gin.Context) {
	id := fleet.NodeID(c.Param("id"))
	l.stream(c, streamOf(id), gin.H{"message": "connected", "nodeId": id}, func(ctx context.Context, at position) (tail, error) {
		if _, err := l.nodeOf(c); err != nil {
			return tail{}, err
		}
		s, err := l.cfg.Agents.FollowRecords(ctx, id, client.RecordQuery{RecordFilter: at.RecordFilter, Limit: at.Limit, After: at.after})
		if err != nil {
			return tail{}, err
		}
		next := func(context.Context) (chunk, error) { // the agent's keep-alives are more frequent than keepAlive
			f, err := s.Next()
			return chunk{records: f.Records, gap: f.Gap}, err
		}
		return tail{next, s.Close}, nil
	})
}
