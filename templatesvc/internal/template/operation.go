package template

import (
	"context"
	"slices"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// Asked says who asks for a change, which one it is, and under which condition.
type Asked struct {
	Author string
	// Operation identifies the change: one that is asked for again is not made twice,
	// but answered with what it came to. "": it may be.
	Operation string
	// Revision is the one that what is changed must still have: the head, or of a change
	// of a draft the draft. 0 for any.
	Revision int64
	// Shown is what the author is shown of values: definitions of variables that are hidden
	// from them stay as they are.
	Shown fleet.Visibility
}

// operationLife is how long an operation is remembered: whoever lost its answer asks
// again within seconds.
const operationLife = time.Hour

// unmoved refuses a revision that is not the one asked for: Conflict that blames client.Stale.
func (a Asked) unmoved(what string, now int64) error {
	if a.Revision == 0 || a.Revision == now {
		return nil
	}
	return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: what + " is not what it was when you read it: read it again"}
}

// remembered is the write that remembers an operation, in the transaction that makes
// it: a second one of the same name is refused. None where it has no name.
func (s *Service) remembered(operation string, ref fleet.TemplateRef, digest string) []store.Write {
	if operation == "" {
		return nil
	}
	o := fleet.TemplateOperation{ID: operation, TemplateRef: ref, Digest: digest, At: s.cfg.Now().UTC()}
	return []store.Write{store.Create(store.TemplateOperationKey(operation), o)}
}

// once makes a change. When that fails because it was made before, it is answered with
// the head as it was then.
func (s *Service) once(ctx context.Context, operation string, change func() (fleet.TemplateHead, error)) (fleet.TemplateHead, error) {
	head, err := change()
	if err == nil || operation == "" {
		return head, err
	}
	if done, made, lookErr := s.performed(ctx, operation); lookErr == nil && made {
		return done, nil
	}
	return head, err
}

// performed is the head that an operation made; made is false when it was not, or is
// forgotten. Of the head's description, what is known is what it is now.
func (s *Service) performed(ctx context.Context, operation string) (head fleet.TemplateHead, made bool, err error) {
	if operation == "" {
		return head, false, nil
	}
	o, err := store.Get(ctx, s.cfg.Store, store.TemplateOperationKey(operation))
	if errs.Is(err, errs.NotFound) {
		return head, false, nil
	}
	if err != nil {
		return head, false, errs.Wrap("template.performed", err)
	}
	if head, err = s.head(ctx, o.TemplateRef); err != nil {
		return head, false, errs.Wrap("template.performed", err)
	}
	head.TemplateRef, head.Digest = o.TemplateRef, o.Digest
	head.SetRev(head.CreateRev, o.ModRev)
	return head, true, nil
}

// ForgetOperations forgets operations that nobody asks for again.
func (s *Service) ForgetOperations(ctx context.Context) error {
	all, _, err := store.List(ctx, s.cfg.Store, store.TemplateOperations())
	if err != nil {
		return errs.Wrap("template.ForgetOperations", err)
	}
	var writes []store.Write
	for _, o := range all {
		if s.cfg.Now().Sub(o.At) >= operationLife {
			writes = append(writes, store.Remove(store.TemplateOperationKey(o.ID), o.ModRev))
		}
	}
	return errs.Wrap("template.ForgetOperations", s.removeAll(ctx, writes))
}

// removeAtOnce bounds the removals of one transaction.
const removeAtOnce = 100

// removeAll commits removals that do not depend on each other. What was removed or
// changed by others meanwhile is left to the next time.
func (s *Service) removeAll(ctx context.Context, writes []store.Write) error {
	for part := range slices.Chunk(writes, removeAtOnce) {
		if _, err := s.cfg.Store.Commit(ctx, store.Txn{Writes: part}); err != nil && !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return nil
}
