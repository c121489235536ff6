// Package sourceops writes and syncs the sources of templates, such as Git repositories.
package sourceops

import (
	"bytes"
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

	"github.com/orreryhq/orrery/apigateway/internal/ops/groupops"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/applied"
	"github.com/orreryhq/orrery/libs/fleet/compose"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Sources changes the records of the sources of templates. Their credentials are
// sealed on the way in and never come out.
type Sources struct {
	*txn.Committer
	box seal.Box
}

// New returns the operations on sources. They seal credentials with the ring.
func New(c *txn.Committer, ring *seal.Ring) *Sources {
	return &Sources{Committer: c, box: ring.Records(content.SourceCredentialsKind)}
}

// Source is a source with its status.
type Source struct {
	content.TemplateSource
	// Status is the last one that templatesvc wrote. It may refer to an earlier record.
	Status content.SourceStatus
	// Credentials are the names of the credentials that are set.
	Credentials []string
	// waiting has the values that can be confirmed: Held, or one for each directory.
	waiting []string
}

// confirms returns Conflict when confirm does not wait for confirmation. A client that lost the
// answer may confirm the same again.
func (s Source) confirms(confirm string) error {
	switch {
	case confirm == "" || confirm == s.Confirmed || slices.Contains(s.waiting, confirm):
		return nil
	case len(s.waiting) == 0:
		return errs.New(errs.Conflict, "nothing of source %s waits to be confirmed: sync without confirm, and look at its status", s.Name)
	}
	return errs.New(errs.Conflict, "nothing of source %s waits under that name: look at its status, and confirm its held, now %s", s.Name, strings.Join(s.waiting, " or "))
}

// SourceWrite creates or replaces a source.
type SourceWrite struct {
	// Source is the desired source. Write sets the fields that only the gateway writes.
	Source content.TemplateSource
	// Credentials replaces all credentials of the source; nil keeps them.
	Credentials *content.SourceCredentials
	// IfMatch is the required revision, Present or Absent; 0 accepts any.
	IfMatch int64
	DryRun  bool
}

// List returns all sources in order of name.
func (s *Sources) List(ctx context.Context) (out []Source, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		all, _, err := store.List(ctx, s.Store, keys.TemplateSources())
		if err != nil {
			return errs.Wrap("operate.Sources", err)
		}
		statuses, _, err := store.List(ctx, s.Store, keys.TemplateSourceStatuses())
		if err != nil {
			return errs.Wrap("operate.Sources", err)
		}
		by := map[string]content.SourceStatus{}
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
	compose.Declaration
	// Kind is group or catalog. For Name, see fleet.DeclaredStatus.
	Kind, Name string
	// Status is empty until a gateway has processed the latest record.
	Status compose.DeclaredStatus
}

// Declared is all that sources declare, by source.
func (s *Sources) Declared(ctx context.Context) (out map[string][]Declared, err error) {
	out = map[string][]Declared{}
	c := s.Store
	err = txn.InTime(ctx, func(ctx context.Context) error {
		err := listDeclared(ctx, c, out, "group", keys.DeclaredGroups(), keys.DeclaredStatuses(), func(d compose.DeclaredGroup) (compose.Declaration, string, int64) {
			return d.Declaration, string(d.Group), d.ModRev
		})
		if err != nil {
			return err
		}
		return listDeclared(ctx, c, out, "catalog", keys.DeclaredCatalog(), keys.DeclaredCatalogStatuses(), func(d compose.DeclaredCatalog) (compose.Declaration, string, int64) {
			return d.Declaration, d.Name(), d.ModRev
		})
	})
	return out, err
}

// listDeclared adds all declarations of one kind to out.
func listDeclared[T any](ctx context.Context, c *store.Client, out map[string][]Declared, kind string, list keys.Prefix[T], told keys.Prefix[compose.DeclaredStatus], open func(T) (d compose.Declaration, name string, rev int64)) error {
	all, _, err := store.List(ctx, c, list)
	if err != nil {
		return errs.Wrap("operate.Sources", err)
	}
	statuses, _, err := store.List(ctx, c, told)
	if err != nil {
		return errs.Wrap("operate.Sources", err)
	}
	by := map[string]compose.DeclaredStatus{}
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

// Get returns one source. NotFound when it does not exist.
func (s *Sources) Get(ctx context.Context, name string) (out Source, err error) {
	err = txn.InTime(ctx, func(ctx context.Context) error {
		if name == content.DirectoryOrigin {
			out, err = s.directory(ctx)
			return err
		}
		one, err := s.existing(ctx, name)
		if err != nil {
			return err
		}
		st, err := txn.GetOptional(ctx, s.Store, keys.TemplateSourceStatus(name))
		out = s.shown(one, st)
		return err
	})
	return out, err
}

// shown returns a source without its secrets.
func (s *Sources) shown(one content.TemplateSource, st content.SourceStatus) Source {
	c, _ := s.credentials(one) // unreadable credentials have no names
	out := Source{TemplateSource: one, Status: st, Credentials: c.Names()}
	if st.Held != "" {
		out.waiting = []string{st.Held}
	}
	return out
}

func (s *Sources) credentials(one content.TemplateSource) (c content.SourceCredentials, err error) {
	if one.Sealed == nil {
		return c, nil
	}
	plain, err := s.box.Open(one.Sealed)
	if err == nil {
		err = json.Unmarshal(plain, &c)
	}
	return c, errs.Wrap("operate.Sources", err)
}

func (s *Sources) existing(ctx context.Context, name string) (content.TemplateSource, error) {
	one, err := txn.GetOptional(ctx, s.Store, keys.TemplateSource(name))
	if err == nil && one.ModRev == 0 {
		err = errs.New(errs.NotFound, "there is no source of templates %s", txn.Clip(name))
	}
	return one, err
}

// Write creates or replaces a source; created says which. Invalid names every wrong field. It is
// also Invalid to change the URL of a source with credentials and not give them again, because they
// could be sent to the wrong host. MovedError when IfMatch does not match. It writes nothing when
// nothing changes.
func (s *Sources) Write(ctx context.Context, by txn.Actor, w SourceWrite) (out Source, created bool, err error) {
	o := s.Committer
	try := func(ctx context.Context) error {
		old, err := txn.GetOptional(ctx, o.Store, keys.TemplateSource(w.Source.Name))
		if err != nil {
			return err
		}
		if err := txn.CheckRevision("source "+w.Source.Name, w.IfMatch, old.ModRev); err != nil {
			return o.NameChanger(err)
		}
		next, err := s.next(old, w)
		if err != nil {
			return err
		}
		created = old.ModRev == 0
		out = s.shown(next, content.SourceStatus{})
		if w.DryRun || !created && sameSource(old, next) {
			return nil
		}
		next.By, next.UpdatedAt, next.Attended = by.User, o.Now(), false
		said := txn.Entry{
			Action: "template-source.update", Resource: "template-source", ID: next.Name,
			Details: string(next.Kind) + " " + cmp.Or(next.URL, next.Program),
		}
		if created {
			next.CreatedAt, said.Action = next.UpdatedAt, "template-source.create"
		}
		said.Before, said.After = sourceRecords(old, next)
		if next.Sealed, err = s.box.Renew(next.Sealed); err != nil {
			return errs.Wrap("operate.Sources", err)
		}
		_, err = o.RecordEntry(ctx, by, said, store.Replace(keys.TemplateSource(next.Name), next, old.ModRev))
		return err
	}
	err = txn.InTime(ctx, func(ctx context.Context) error {
		return txn.RetryConflicts(func() error { return try(ctx) })
	})
	if err != nil || w.DryRun {
		return out, created, err
	}
	out, err = s.Get(ctx, w.Source.Name)
	return out, created, err
}

// next is the record a write asks for.
func (s *Sources) next(old content.TemplateSource, w SourceWrite) (content.TemplateSource, error) {
	next := w.Source
	next.Rev, next.By, next.CreatedAt, next.UpdatedAt, next.Asked, next.Attended = old.Rev, old.By, old.CreatedAt, old.UpdatedAt, old.Asked, old.Attended
	next.Sealed, next.Confirmed = old.Sealed, old.Confirmed
	problems := next.Validate()
	switch {
	case w.Credentials != nil:
		problems = append(problems, w.Credentials.Validate()...)
	case old.Sealed != nil && (next.URL != old.URL || next.Program != old.Program):
		problems = append(problems, errs.Field("credentials", "must be given again with another url or program, so that they are not sent to the wrong host"))
	}
	if err := txn.JoinProblems(problems); err != nil || w.Credentials == nil {
		return next, err
	}
	if present, err := s.credentials(old); err == nil && present == *w.Credentials {
		return next, nil // sealing again would look like a change
	}
	if next.Sealed = nil; *w.Credentials != (content.SourceCredentials{}) {
		plain, err := json.Marshal(w.Credentials)
		if err != nil {
			return next, errs.WrapAs(errs.Internal, "operate.Sources", err)
		}
		next.Sealed = s.box.Seal(plain)
	}
	return next, nil
}

func sameSource(a, b content.TemplateSource) bool { return reflect.DeepEqual(a, b) }

// Delete removes a source and keeps its templates. NotFound when it does not exist.
func (s *Sources) Delete(ctx context.Context, by txn.Actor, name string, ifMatch int64, dryRun bool) error {
	o := s.Committer
	if name == content.DirectoryOrigin {
		return errs.New(errs.Invalid, "the directory of templates is set on templatesvc's machine, as templates.dir")
	}
	_, err := o.Mutate(ctx, by, func(snap *view.Snapshot) (txn.Change, error) {
		one, err := s.existing(ctx, name)
		if err == nil {
			err = txn.CheckRevision("source "+name, ifMatch, one.ModRev)
		}
		if err != nil {
			return txn.Change{}, err
		}
		if err := groupops.StorageUnused(snap, name); err != nil || dryRun {
			return txn.Change{}, err
		}
		st, err := txn.GetOptional(ctx, o.Store, keys.TemplateSourceStatus(name))
		if err != nil {
			return txn.Change{}, err
		}
		c := txn.Change{
			Guards: []store.Guard{groupops.StillUnreferenced(snap)},
			Writes: []store.Write{store.Remove(keys.TemplateSource(name), one.ModRev)},
			Audit:  txn.Entry{Action: "template-source.delete", Resource: "template-source", ID: name},
		}
		if st.ModRev != 0 {
			c.Writes = append(c.Writes, store.Remove(keys.TemplateSourceStatus(name), st.ModRev))
		}
		c.DropApplied(snap, applied.TemplateSource, name)
		c.Audit.Before, _ = sourceRecords(one, content.TemplateSource{})
		return c, nil
	})
	return err
}

// Sync asks the owner of a source to sync it now. confirm is the Held of the status whose removals
// the caller confirms, "" confirms none. NotFound when the source does not exist, Conflict when
// confirm does not wait for confirmation.
func (s *Sources) Sync(ctx context.Context, by txn.Actor, name, confirm string) error {
	return s.sync(ctx, by, name, confirm, true)
}

func (s *Sources) sync(ctx context.Context, by txn.Actor, name, confirm string, attended bool) error {
	return txn.InTime(ctx, func(ctx context.Context) error {
		return txn.RetryConflicts(func() error {
			if name == content.DirectoryOrigin {
				return s.syncDirectory(ctx, by, confirm)
			}
			one, err := s.existing(ctx, name)
			if err != nil {
				return err
			}
			st, err := txn.GetOptional(ctx, s.Store, keys.TemplateSourceStatus(name))
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
			if one.Sealed, err = s.box.Renew(one.Sealed); err != nil {
				return errs.Wrap("operate.Sources", err)
			}
			_, err = s.Record(ctx, by, "template-source.sync", "template-source", name, "", store.Replace(keys.TemplateSource(name), one, one.ModRev))
			return err
		})
	})
}

// Call is a received webhook call.
type Call struct {
	Body []byte
	// Signature is "sha256=" and the HMAC of the body, as sent by GitHub, Gitea and Forgejo. Token is
	// the secret itself, as sent by GitLab.
	Signature, Token string
}

// Webhook syncs a source when the call is signed with the source's webhook secret. Unauthenticated
// when it is not, when the source has no secret, and when it does not exist. A call before the last
// sync began writes nothing.
func (s *Sources) Webhook(ctx context.Context, by txn.Actor, name string, call Call) error {
	one, err := s.Get(ctx, name)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return err
	}
	var c content.SourceCredentials
	if err == nil {
		if c, err = s.credentials(one.TemplateSource); err != nil {
			return err
		}
	}
	if c.Webhook == "" || !call.signed(c.Webhook) { // anyone may call, so do not reveal which sources exist
		return errs.New(errs.Unauthenticated, "the call is not signed with the secret of this source's webhook: give the source one (credentials.webhook), and the forge the same")
	}
	if one.Status.Observed != one.ModRev {
		return nil
	}
	by.User = "webhook " + name
	return s.sync(ctx, by, name, "", false)
}

// signed checks the signature or token in constant time.
func (c Call) signed(secret string) bool {
	if c.Signature == "" {
		return subtle.ConstantTimeCompare([]byte(c.Token), []byte(secret)) == 1
	}
	given, err := hex.DecodeString(strings.TrimPrefix(c.Signature, "sha256="))
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write(c.Body) // never fails
	return err == nil && hmac.Equal(given, mac.Sum(nil))
}

// SourceRecord is what the audit keeps of a source. Of its credentials it keeps whether there are
// any.
func SourceRecord(one content.TemplateSource) map[string]any {
	if one.CreatedAt.IsZero() {
		return nil
	}
	out := txn.ToMap(one)
	for _, told := range []string{"name", "sealed", "asked", "confirmed", "by", "createdAt", "updatedAt"} {
		delete(out, told)
	}
	if one.Sealed != nil {
		out["credentials"] = content.Hidden
	}
	return out
}

// sourceRecords returns the audit records of a source before and after a change.
func sourceRecords(from, to content.TemplateSource) (before, after any) {
	a, b := SourceRecord(from), SourceRecord(to)
	if a == nil || b == nil {
		return txn.OrNil(a), txn.OrNil(b)
	}
	x, y := txn.Diff(a, b)
	if from.Sealed != nil && to.Sealed != nil && !bytes.Equal(from.Sealed, to.Sealed) {
		x["credentials"], y["credentials"] = content.Hidden, content.Hidden
	}
	return x, y
}
