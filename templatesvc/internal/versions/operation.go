package versions

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/templatesvc/client"
)

// Asked describes a requested change: who requests it, its operation ID and its
// precondition.
type Asked struct {
	Author string
	// Owner is the owner of the drafts, see content.TemplateDraft.Owner.
	Owner string
	// Operation is the idempotency key. A repeated operation is not performed again, but
	// returns its first result. "" means none.
	Operation string
	// Request identifies the content of the request when For cannot; "" means that For
	// does.
	Request string
	// Revision is the required revision of the head or, for a change of a draft, of the
	// draft. 0 means any.
	Revision int64
	// Shown is which values the author may see. Variable definitions that are hidden from
	// the author cannot be changed.
	Shown content.Visibility

	// kind and request distinguish changes with the same operation ID; see For.
	kind, request string
}

// For sets the kind of change and its parameters, other than the template and the
// precondition. If the same operation ID is used with other parameters, the change is
// refused.
func (a Asked) For(kind string, with ...any) Asked {
	text, _ := json.Marshal(with) // words, numbers, and lists of them
	a.kind, a.request = kind, cmp.Or(a.Request, content.DigestOf(text))
	return a
}

// unmoved returns Conflict with the field client.Stale when the revision is not the
// required one.
func (a Asked) unmoved(what string, now int64) error {
	if a.Revision == 0 || a.Revision == now {
		return nil
	}
	return &errs.Error{Kind: errs.Conflict, Field: client.Stale, Message: what + " has changed since you read it: read it again"}
}

// Limits of the remembered operations. A client that lost an answer repeats its request
// within seconds.
const (
	// operationLife is how long an operation is remembered at least. Operations of one
	// replica within operationsTogether share a lease.
	operationLife      = time.Hour
	operationsTogether = 5 * time.Minute
	// maxOperations is roughly the maximum number of remembered operations. See
	// store.Memory for how replicas enforce it.
	maxOperations = 10_000
)

// memoryOf returns the memory of a service's operations, which holds at most most of them.
func memoryOf(cfg Config, most int) *store.Memory {
	return store.NewMemory(cfg.Store, keys.TemplateOperations(), store.MemoryConfig{
		Life: operationLife, Together: operationsTogether, Most: most, Now: cfg.Now,
		Forgot: func(early, all int) {
			cfg.Log.Warn("too many changes of templates for the memory of idempotency keys: the oldest keys of the busiest clients are forgotten, so a retry may repeat such a change", "changes", all, "forgotten", early)
		},
	})
}

// remembered returns the write that records an operation, for the transaction that performs
// it. The write fails if the operation ID is already in use. Without an operation ID, it
// returns nil.
func (s *Service) remembered(ctx context.Context, by Asked, ref content.TemplateRef, digest string) ([]store.Write, error) {
	if by.Operation == "" {
		return nil, nil
	}
	o := content.TemplateOperation{ID: by.Operation, TemplateRef: ref, Kind: by.kind, Request: by.request, Digest: digest, At: s.cfg.Now().UTC()}
	w, err := store.Remember(ctx, s.memory, keys.TemplateOperation(by.Operation), o)
	if err != nil {
		return nil, errs.Wrap("template.remembered", err)
	}
	return []store.Write{w}, nil
}

// once performs a change, unless its operation was performed before: then it returns the
// head of that time. It returns Invalid with the field client.Reused when the operation ID
// belongs to another change.
func (s *Service) once(ctx context.Context, ref content.TemplateRef, by Asked, change func() (content.TemplateHead, error)) (content.TemplateHead, error) {
	if by.Operation == "" {
		return change()
	}
	if done, made, err := s.performed(ctx, ref, by); made || err != nil {
		return done, err
	}
	head, err := change()
	if errs.Is(err, errs.Fenced) && store.Lost(err) == nil { // the lease has expired, because this process or etcd was paused for a long time
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

// performed returns the head that an operation produced. made is false if the operation was
// not performed or is forgotten. The other fields of the head, such as its description,
// have their current values. Errors are those of once.
func (s *Service) performed(ctx context.Context, ref content.TemplateRef, by Asked) (head content.TemplateHead, made bool, err error) {
	if by.Operation == "" {
		return head, false, nil
	}
	o, err := store.Get(ctx, s.cfg.Store, keys.TemplateOperation(by.Operation))
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
