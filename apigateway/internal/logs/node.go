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

// NodePage are the last records of a node's agent.
type NodePage struct {
	NodeID fleet.NodeID `json:"nodeId"`
	Page
}

// streamOf is what a ticket for a node's stream is bound to.
func streamOf(id fleet.NodeID) string { return "logs:node:" + string(id) }

// nodeOf is the node a path names. NotFound when there is none.
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

// Node are the last records of a node's agent. Unavailable when it cannot be asked.
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

// streamNode streams what a node's agent logs.
func (l *Logs) streamNode(c *gin.Context) {
	id := fleet.NodeID(c.Param("id"))
	l.stream(c, streamOf(id), gin.H{"message": "connected", "nodeId": id}, func(ctx context.Context, at place) (tail, error) {
		if _, err := l.nodeOf(c); err != nil {
			return nil, err
		}
		s, err := l.cfg.Agents.FollowRecords(ctx, id, client.RecordQuery{RecordFilter: at.RecordFilter, Limit: at.Limit, After: at.after})
		if err != nil {
			return nil, err
		}
		return agents{s}, nil
	})
}

// agents is the log of a node's agent.
type agents struct {
	*client.Stream[client.RecordFrame]
}

// Next waits for the next frame: the agent gives a sign of life more often than a stream may be silent.
func (a agents) Next(context.Context) (piece, error) {
	f, err := a.Stream.Next()
	return piece{records: f.Records, gap: f.Gap}, err
}
