package operate

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Sources changes the records of the sources of templates. Their credentials are
// sealed on the way in and never come out.
type Sources struct {
	operations *Operations
	box        seal.Box
}

// NewSources seals under the cluster secret.
func NewSources(o *Operations, secret string) (*Sources, error) {
	box, err := seal.NewBox(secret, fleet.SourceCredentialsKind)
	return &Sources{operations: o, box: box}, errs.Wrap("operate.NewSources", err)
}

// Source is a source with its status.
type Source struct {
	fleet.TemplateSource
	// Status is the latest one that its owner wrote. It is about an earlier record until the owner
	// has looked again.
	Status fleet.SourceStatus
	// Credentials are the names of the credentials that are set.
	Credentials []string
	// waiting is everything that can be confirmed: Held, or that of each directory.
	waiting []string
}

// confirms is Conflict when confirm does not wait. A client that lost the answer may confirm
// the same again.
func (s Source) confirms(confirm string) error {
	switch {
	case confirm == "" || confirm == s.Confirmed || slices.Contains(s.waiting, confirm):
		return nil
	case len(s.waiting) == 0:
		return errs.New(errs.Conflict, "nothing of source %s waits to be confirmed: sync without confirm, and look at its status", s.Name)
	}
	return errs.New(errs.Conflict, "nothing of source %s waits under that name: look at its status, and confirm its held, now %s", s.Name, strings.Join(s.waiting, " or "))
}

// SourceWrite asks for a source to be as it says.
type SourceWrite struct {
	// Source is the wanted one. Write sets the fields that only the gateway writes.
	Source fleet.TemplateSource
	// Credentials replace all it has; nil keeps them.
	Credentials *fleet.SourceCredentials
	// IfMatch is the revision the source must be at; 0 accepts any. Present and
	// Absent are revisions too.
	IfMatch int64
	DryRun  bool
}

// List are all sources in order of name.
func (s *Sources) List(ctx context.Context) (out []Source, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		all, _, err := store.List(ctx, s.operations.cfg.Store, store.TemplateSources())
		if err != nil {
			return errs.Wrap("operate.Sources", err)
		}
		statuses, _, err := store.List(ctx, s.operations.cfg.Store, store.TemplateSourceStatuses())
		if err != nil {
			return errs.Wrap("operate.Sources", err)
		}
		by := map[string]fleet.SourceStatus{}
		for _, st := range statuses {
			by[st.Name] = st
		}
		for _, one := range all {
			out = append(out, s.shown(one, by[one.Name]))
		}
		out, err = s.withDirectory(ctx, out)
		return err
	})
	return out, err
}

// Declared is a group or an entry of the catalog that a source declares, with its status.
type Declared struct {
	fleet.Declaration
	// Kind is group or catalog; Name as of fleet.DeclaredStatus.
	Kind, Name string
	// Status is empty until a gateway has looked at the latest record.
	Status fleet.DeclaredStatus
}

// Declared is all that sources declare, by source.
func (s *Sources) Declared(ctx context.Context) (out map[string][]Declared, err error) {
	out = map[string][]Declared{}
	c := s.operations.cfg.Store
	err = InTime(ctx, func(ctx context.Context) error {
		err := listDeclared(ctx, c, out, "group", store.DeclaredGroups(), store.DeclaredStatuses(), func(d fleet.DeclaredGroup) (fleet.Declaration, string, int64) {
			return d.Declaration, string(d.Group), d.ModRev
		})
		if err != nil {
			return err
		}
		return listDeclared(ctx, c, out, "catalog", store.DeclaredCatalog(), store.DeclaredCatalogStatuses(), func(d fleet.DeclaredCatalog) (fleet.Declaration, string, int64) {
			return d.Declaration, d.Name(), d.ModRev
		})
	})
	return out, err
}

// listDeclared adds all that is declared of one kind.
func listDeclared[T any](ctx context.Context, c *store.Client, out map[string][]Declared, kind string, list store.Prefix[T], told store.Prefix[fleet.DeclaredStatus], open func(T) (d fleet.Declaration, name string, rev int64)) error {
	all, _, err := store.List(ctx, c, list)
	if err != nil {
		return errs.Wrap("operate.Sources", err)
	}
	statuses, _, err := store.List(ctx, c, told)
	if err != nil {
		return errs.Wrap("operate.Sources", err)
	}
	by := map[string]fleet.DeclaredStatus{}
	for _, st := range statuses {
		by[st.Source+"/"+st.Name()] = st
	}
	for _, one := range all {
		d, name, rev := open(one)
		is := Declared{Declaration: d, Kind: kind, Name: name}
		if st := by[d.Source+"/"+name]; st.Observed == rev {
			is.Status = st
		}
		out[d.Source] = append(out[d.Source], is)
	}
	return nil
}

// Get is one source. NotFound when there is none.
func (s *Sources) Get(ctx context.Context, name string) (out Source, err error) {
	err = InTime(ctx, func(ctx context.Context) error {
		if name == fleet.DirectoryOrigin {
			out, err = s.directory(ctx)
			return err
		}
		one, err := s.existing(ctx, name)
		if err != nil {
			return err
		}
		st, err := optional(ctx, s.operations.cfg.Store, store.TemplateSourceStatusKey(name))
		out = s.shown(one, st)
		return err
	})
	return out, err
}

// shown is a source without what is secret of it.
func (s *Sources) shown(one fleet.TemplateSource, st fleet.SourceStatus) Source {
	c, _ := s.credentials(one) // what does not open has no names
	out := Source{TemplateSource: one, Status: st, Credentials: c.Names()}
	if st.Held != "" {
		out.waiting = []string{st.Held}
	}
	return out
}

func (s *Sources) credentials(one fleet.TemplateSource) (c fleet.SourceCredentials, err error) {
	if one.Sealed == nil {
		return c, nil
	}
	plain, err := s.box.Open(one.Sealed)
	if err == nil {
		err = json.Unmarshal(plain, &c)
	}
	return c, errs.Wrap("operate.Sources", err)
}

func (s *Sources) existing(ctx context.Context, name string) (fleet.TemplateSource, error) {
	one, err := optional(ctx, s.operations.cfg.Store, store.TemplateSourceKey(name))
	if err == nil && one.ModRev == 0 {
		err = errs.New(errs.NotFound, "there is no source of templates %s", clip(name))
	}
	return one, err
}

// optional is a record, or a zero one.
func optional[T any](ctx context.Context, c *store.Client, k store.Key[T]) (T, error) {
	v, err := store.Get(ctx, c, k)
	if errs.Is(err, errs.NotFound) {
		var none T
		return none, nil
	}
	return v, errs.Wrap("operate.Sources", err)
}

// Write creates or replaces a source; created says which. Invalid names every field at
// fault: also when a source with credentials is given another URL without them, which
// would send them elsewhere. MovedError when IfMatch does not hold. What changes nothing
// writes nothing.
func (s *Sources) Write(ctx context.Context, by Actor, w SourceWrite) (out Source, created bool, err error) {
	o := s.operations
	err = InTime(ctx, func(ctx context.Context) error {
		old, err := optional(ctx, o.cfg.Store, store.TemplateSourceKey(w.Source.Name))
		if err != nil {
			return err
		}
		if err := unmoved("source "+w.Source.Name, w.IfMatch, old.ModRev); err != nil {
			return o.blamed(err)
		}
		next, err := s.next(old, w)
		if err != nil {
			return err
		}
		created = old.ModRev == 0
		out = s.shown(next, fleet.SourceStatus{})
		if w.DryRun || !created && sameSource(old, next) {
			return nil
		}
		next.By, next.UpdatedAt, next.Attended = by.User, o.now(), false
		said := entry{
			action: "template-source.update", resource: "template-source", id: next.Name,
			details: string(next.Kind) + " " + cmp.Or(next.URL, next.Program),
		}
		if created {
			next.CreatedAt, said.action = next.UpdatedAt, "template-source.create"
		}
		said.before, said.after = sourceRecords(old, next)
		_, err = o.record(ctx, by, said, store.Replace(store.TemplateSourceKey(next.Name), next, old.ModRev))
		return err
	})
	if err != nil || w.DryRun {
		return out, created, err
	}
	out, err = s.Get(ctx, w.Source.Name)
	return out, created, err
}

// next is the record a write asks for.
func (s *Sources) next(old fleet.TemplateSource, w SourceWrite) (fleet.TemplateSource, error) {
	next := w.Source
	next.Rev, next.By, next.CreatedAt, next.UpdatedAt, next.Asked, next.Attended = old.Rev, old.By, old.CreatedAt, old.UpdatedAt, old.Asked, old.Attended
	next.Sealed, next.Confirmed = old.Sealed, old.Confirmed
	problems := next.Validate()
	switch {
	case w.Credentials != nil:
		problems = append(problems, w.Credentials.Validate()...)
	case old.Sealed != nil && (next.URL != old.URL || next.Program != old.Program):
		problems = append(problems, errs.Field("credentials", "must be given anew with another url or program, so that they are sent nowhere by mistake"))
	}
	if err := joined(problems); err != nil || w.Credentials == nil {
		return next, err
	}
	if present, err := s.credentials(old); err == nil && present == *w.Credentials {
		return next, nil // sealing anew would look like a change
	}
	if next.Sealed = nil; *w.Credentials != (fleet.SourceCredentials{}) {
		plain, err := json.Marshal(w.Credentials)
		if err != nil {
			return next, errs.As(errs.Internal, "operate.Sources", err)
		}
		next.Sealed = s.box.Seal(plain)
	}
	return next, nil
}

func sameSource(a, b fleet.TemplateSource) bool { return reflect.DeepEqual(a, b) }

// Delete removes a source; its templates stay as they are. NotFound when there is none.
func (s *Sources) Delete(ctx context.Context, by Actor, name string, ifMatch int64, dryRun bool) error {
	o := s.operations
	if name == fleet.DirectoryOrigin {
		return errs.New(errs.Invalid, "the directory of templates is set on templatesvc's machine, as templates.dir")
	}
	_, err := o.mutate(ctx, by, func(snap *view.Snapshot) (change, error) {
		one, err := s.existing(ctx, name)
		if err == nil {
			err = unmoved("source "+name, ifMatch, one.ModRev)
		}
		if err != nil {
			return change{}, err
		}
		if err := storageUnused(snap, name); err != nil || dryRun {
			return change{}, err
		}
		st, err := optional(ctx, o.cfg.Store, store.TemplateSourceStatusKey(name))
		if err != nil {
			return change{}, err
		}
		c := change{
			guards: []store.Guard{stillUnreferenced(snap)},
			writes: []store.Write{store.Remove(store.TemplateSourceKey(name), one.ModRev)},
			audit:  entry{action: "template-source.delete", resource: "template-source", id: name},
		}
		if st.ModRev != 0 {
			c.writes = append(c.writes, store.Remove(store.TemplateSourceStatusKey(name), st.ModRev))
		}
		c.audit.before, _ = sourceRecords(one, fleet.TemplateSource{})
		return c, nil
	})
	return err
}

// retried tries once more what lost a race, a few times.
func retried(try func() error) (err error) {
	for range attempts {
		if err = try(); !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return err
}

// Sync has a source looked at at once; confirm is the status' Held, whose removals are
// meant, "" confirms nothing new. NotFound when there is none, Conflict when nothing waits
// under the name that is confirmed.
func (s *Sources) Sync(ctx context.Context, by Actor, name, confirm string) error {
	return s.sync(ctx, by, name, confirm, true)
}

func (s *Sources) sync(ctx context.Context, by Actor, name, confirm string, attended bool) error {
	return InTime(ctx, func(ctx context.Context) error {
		return retried(func() error {
			if name == fleet.DirectoryOrigin {
				return s.syncDirectory(ctx, by, confirm)
			}
			one, err := s.existing(ctx, name)
			if err != nil {
				return err
			}
			st, err := optional(ctx, s.operations.cfg.Store, store.TemplateSourceStatusKey(name))
			if err == nil {
				err = s.shown(one, st).confirms(confirm)
			}
			if err != nil {
				return err
			}
			one.Attended = attended
			if one.Asked++; confirm != "" {
				one.Confirmed = confirm
			}
			_, err = s.operations.Record(ctx, by, "template-source.sync", "template-source", name, "", store.Replace(store.TemplateSourceKey(name), one, one.ModRev))
			return err
		})
	})
}

// Call is what came to a webhook.
type Call struct {
	Body []byte
	// Signature is "sha256=" and the HMAC of the body, as GitHub, Gitea and Forgejo send
	// it; Token the secret itself, as GitLab does.
	Signature, Token string
}

// Webhook has a source looked at if the call is signed with its webhook's secret.
// Unauthenticated when it is not, and also when the source has none or there is no such
// source. A call that comes before the last one was followed writes nothing.
func (s *Sources) Webhook(ctx context.Context, by Actor, name string, call Call) error {
	one, err := s.Get(ctx, name)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	var c fleet.SourceCredentials
	if err == nil {
		if c, err = s.credentials(one.TemplateSource); err != nil {
			return err
		}
	}
	if c.Webhook == "" || !call.signed(c.Webhook) { // anybody may call: which sources there are is not told
		return errs.New(errs.Unauthenticated, "the call is not signed with the secret of this source's webhook: give the source one (credentials.webhook), and the forge the same")
	}
	if one.Status.Observed != one.ModRev {
		return nil
	}
	by.User = "webhook " + name
	return s.sync(ctx, by, name, "", false)
}

// signed compares in constant time.
func (c Call) signed(secret string) bool {
	if c.Signature == "" {
		return subtle.ConstantTimeCompare([]byte(c.Token), []byte(secret)) == 1
	}
	given, err := hex.DecodeString(strings.TrimPrefix(c.Signature, "sha256="))
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write(c.Body) // never fails
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}
