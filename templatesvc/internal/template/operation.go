package template

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// Asked says who asks for a change, which one it is, and under which condition.
type Asked struct {
	Author string
	// Owner is whose drafts are meant: fleet.TemplateDraft.Owner.
	Owner string
	// Operation names the change: one that is asked for again is not made twice, but
	// answered with what it came to. "": it may be.
	Operation string
	// Request tells the change from others under the same name better than what is made of
	// it, see For; "": nothing does.
	Request string
	// Revision is the one that what is changed must still have: the head, or of a change
	// of a draft the draft. 0 for any.
	Revision int64
	// Shown is what the author is shown of values: definitions of variables that are hidden
	// from them stay as they are.
	Shown fleet.Visibility

	// kind and request tell the change from others under the same name; see For.
	kind, request string
}

// For says what is asked for: a kind of change, and all that makes it another one of that
// kind, but the template and the conditions it is made under. What differs in it is refused
// under the same operation.
func (a Asked) For(kind string, with ...any) Asked {
	text, _ := json.Marshal(with) // words, numbers, and lists of them
	a.kind, a.request = kind, cmp.Or(a.Request, fleet.DigestOf(text))
	return a
}

// unmoved refuses a revision that is not the one asked for: Conflict that blames client.Stale.
func (a Asked) unmoved(what string, now int64) error {
	if a.Revision == 0 || a.Revision == now {
		return nil
	}
	return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: what + " is not what it was when you read it: read it again"}
}

// Bounds of what is remembered. Whoever lost an answer asks again within seconds.
const (
	// operationLife is how long an operation is remembered at least, operationsTogether
	// for how long those of one replica share a lease.
	operationLife      = time.Hour
	operationsTogether = 5 * time.Minute
	// maxOperations is about how many are remembered at most: each replica looks after
	// every tenth part of it that it has made itself; see store.Memory.
	maxOperations = 10_000
)

// memoryOf is how a service remembers operations, of which there are most.
func memoryOf(cfg Config, most int) *store.Memory {
	return store.NewMemory(cfg.Store, store.TemplateOperations(), store.MemoryConfig{
		Life: operationLife, Together: operationsTogether, Most: most, Now: cfg.Now,
		Forgot: func(early, all int) {
			cfg.Log.Warn("there are more changes of templates than can be remembered for an hour, the oldest of who made the most are forgotten: one of those that is asked for again is made again", "changes", all, "forgotten", early)
		},
	})
}

// remembered is the write that remembers an operation, in the transaction that makes
// it: a second one of the same name is refused. None where it has no name.
func (s *Service) remembered(ctx context.Context, by Asked, ref fleet.TemplateRef, digest string) ([]store.Write, error) {
	if by.Operation == "" {
		return nil, nil
	}
	o := fleet.TemplateOperation{ID: by.Operation, TemplateRef: ref, Kind: by.kind, Request: by.request, Digest: digest, At: s.cfg.Now().UTC()}
	w, err := store.Remember(ctx, s.memory, store.TemplateOperationKey(by.Operation), o)
	if err != nil {
		return nil, errs.Wrap("template.remembered", err)
	}
	return []store.Write{w}, nil
}

// once makes a change, unless it was made before: then it is answered with the head as
// it was then. Invalid that blames client.Reused when another change had its name.
func (s *Service) once(ctx context.Context, ref fleet.TemplateRef, by Asked, change func() (fleet.TemplateHead, error)) (fleet.TemplateHead, error) {
	if by.Operation == "" {
		return change()
	}
	if done, made, err := s.performed(ctx, ref, by); made || err != nil {
		return done, err
	}
	head, err := change()
	if errs.Is(err, errs.Fenced) && store.Lost(err) == nil { // the lease has ended: this process, or etcd, was stopped for long
		s.memory.Renew()
		head, err = change()
	}
	if err == nil {
		return head, nil
	}
	if done, made, lookErr := s.performed(ctx, ref, by); made || errs.FieldOf(lookErr) == client.Reused {
		return done, lookErr
	}
	return head, err
}

// performed is the head that an operation made; made is false when it was not, or is
// forgotten. Of the head's description, what is known is what it is now. Errors as of once.
func (s *Service) performed(ctx context.Context, ref fleet.TemplateRef, by Asked) (head fleet.TemplateHead, made bool, err error) {
	if by.Operation == "" {
		return head, false, nil
	}
	o, err := store.Get(ctx, s.cfg.Store, store.TemplateOperationKey(by.Operation))
	if errs.Is(err, errs.NotFound) {
		return head, false, nil
	}
	if err != nil {
		return head, false, errs.Wrap("template.performed", err)
	}
	if o.TemplateRef != ref || o.Kind != by.kind || o.Request != by.request {
		return head, false, errs.Field(client.Reused, "was given within the hour to another change (%s of %s): take a new one for this, or ask for that as it was", o.Kind, o.TemplateRef)
	}
	if head, err = s.head(ctx, o.TemplateRef); err != nil {
		return head, false, errs.Wrap("template.performed", err)
	}
	head.TemplateRef, head.Digest = o.TemplateRef, o.Digest
	head.SetRev(head.CreateRev, o.ModRev)
	return head, true, nil
}
