package instances

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/orreryhq/orrery/apigateway/internal/ops/moveops"
	"github.com/orreryhq/orrery/apigateway/internal/server"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/move"
	"github.com/orreryhq/orrery/libs/store/view"
)

// instanceMove is the latest move of an instance in an answer.
type instanceMove struct {
	ID              string       `json:"id"`
	From            fleet.NodeID `json:"from"`
	To              fleet.NodeID `json:"to"`
	Step            move.Step    `json:"step"`
	RequestedBy     string       `json:"requestedBy"`
	RequestedAt     time.Time    `json:"requestedAt"`
	StepAt          time.Time    `json:"stepAt"`
	DeadlineSeconds int          `json:"deadlineSeconds"`
	Note            string       `json:"note"`
	CancelledBy     string       `json:"cancelledBy,omitempty"`
	// CopyState is how far the copy is, empty before it begins.
	CopyState move.CopyState `json:"copyState,omitempty"`
	// BytesDone and FilesDone are copied and verified, of BytesTotal and FilesTotal.
	BytesDone  int64 `json:"bytesDone"`
	BytesTotal int64 `json:"bytesTotal"`
	FilesDone  int   `json:"filesDone"`
	FilesTotal int   `json:"filesTotal"`
	// Shared is true if both nodes use the same directory, so that nothing is copied.
	Shared bool `json:"shared"`
	// Reason and Message say why the move waits or failed.
	Reason  fleet.Reason `json:"reason,omitempty"`
	Message string       `json:"message,omitempty"`
}

// moveOf shows the latest move of an instance, nil without one.
func moveOf(s *view.Snapshot, id fleet.InstanceID) *instanceMove {
	m, c := s.Move(id)
	if m == nil {
		return nil
	}
	return showMove(m, c)
}

func showMove(m *move.Move, c *move.Copy) *instanceMove {
	out := &instanceMove{
		ID: m.ID, From: m.Source, To: m.Target, Step: m.Step, RequestedBy: m.By, RequestedAt: m.At, StepAt: m.StepAt, DeadlineSeconds: m.DeadlineSeconds,
		Note: m.Message, CancelledBy: m.CancelBy, Shared: m.Shared, Reason: m.Reason, Message: m.Detail,
		BytesDone: m.Bytes, BytesTotal: m.Bytes, FilesDone: m.Files, FilesTotal: m.Files,
	}
	if c != nil && m.Step != move.Stopping {
		out.CopyState, out.BytesDone, out.BytesTotal, out.FilesDone, out.FilesTotal = c.State, c.BytesDone, c.BytesTotal, c.FilesDone, c.FilesTotal
		if m.Active() && c.Message != "" {
			out.Reason, out.Message = c.Reason, c.Message
		}
	}
	return out
}

// moveFields are the fields of a request to move an instance. An absent one has its default.
type moveFields struct {
	Node            fleet.NodeID `json:"node"`
	DeadlineSeconds *int         `json:"deadlineSeconds"`
	Message         string       `json:"message"`
}

// moveInstance moves a static instance with its data to another node.
func (a *API) moveInstance(c *gin.Context) {
	var b moveFields
	if !server.BindOptional(c, &b) {
		return
	}
	r := moveops.Request{Ref: c.Param("id"), Node: b.Node, DeadlineSeconds: move.DefaultDeadlineSeconds, Message: b.Message, DryRun: server.DryRun(c)}
	if b.DeadlineSeconds != nil {
		r.DeadlineSeconds = *b.DeadlineSeconds
	}
	p, err := a.cfg.Operations.MoveInstance(c.Request.Context(), server.Actor(c), r)
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := gin.H{"instanceId": p.Move.Name, "uid": p.Move.Instance, "from": p.Move.Source, "to": p.Move.Target, "players": p.Players, "bytes": p.Bytes, "steps": p.Steps}
	if r.DryRun {
		out["dryRun"], out["action"] = true, "move"
	} else {
		server.ETag(c, p.Move.ModRev)
		out["status"], out["move"] = "moving", showMove(p.Move, nil)
	}
	c.JSON(http.StatusOK, out)
}

// getMove shows the latest move of an instance.
func (a *API) getMove(c *gin.Context) {
	s := a.cfg.Operations.Snapshot()
	i, err := a.cfg.Operations.Find(c.Param("id"))
	if err != nil {
		server.Fail(c, err)
		return
	}
	m, copied := s.Move(i.Intent.ID)
	if m == nil {
		server.Fail(c, errs.New(errs.NotFound, "instance %s was not moved", i.Intent.Name))
		return
	}
	server.ETag(c, m.ModRev)
	c.JSON(http.StatusOK, showMove(m, copied))
}

// cancelMove cancels the move of an instance.
func (a *API) cancelMove(c *gin.Context) {
	m, err := a.cfg.Operations.CancelMove(c.Request.Context(), server.Actor(c), c.Param("id"), server.DryRun(c))
	if err != nil {
		server.Fail(c, err)
		return
	}
	out := gin.H{"instanceId": m.Name, "uid": m.Instance, "move": showMove(m, nil), "outlook": "it starts again on node " + string(m.Source) + " if it ran before"}
	if server.DryRun(c) {
		out["dryRun"], out["action"] = true, "cancel"
	} else {
		out["status"] = "cancelling"
	}
	c.JSON(http.StatusOK, out)
}

// movesOf returns the step that says what the move of an instance does. It returns nil without an
// active move.
func movesOf(s *view.Snapshot, i *fleet.Instance) []link {
	m, _ := s.Move(i.Intent.ID)
	if !m.Active() && (m == nil || m.Reason == "") {
		return nil
	}
	shown := moveOf(s, i.Intent.ID)
	if m.Target == "" { // it could not begin
		return []link{{Step: stepMoves, Reason: m.Reason, Message: m.Detail, By: m.By, At: when(m.At), Revision: m.ModRev, Node: m.Source}}
	}
	text := "it moves from node " + string(m.Source) + " to node " + string(m.Target) + " (" + string(m.Step) + ")"
	if shown.Message != "" {
		text += ": " + shown.Message
	}
	reason := fleet.ReasonMoved
	if m.Reason != "" {
		reason = m.Reason
	}
	return []link{{Step: stepMoves, Reason: reason, Message: text, By: m.By, At: when(m.At), Revision: m.ModRev, Node: m.Target}}
}
