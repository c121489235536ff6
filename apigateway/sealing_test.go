package apigateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/cluster"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/reveal"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/store/storetest"
	"github.com/orreryhq/orrery/libs/store/view"
)

const (
	sealKey   = "key-encryption key of the test, 1"
	sealKey2  = "key-encryption key of the test, 2"
	sealing   = "/api/v1/system/sealing-key"
	rotations = sealing + "/rotate"
)

func sealedBy(key string) func(*Config) { return func(c *Config) { c.SealKey = key } }

// keyring returns the stored keyring, or the zero value.
func (s *site) keyring() account.Keyring {
	s.t.Helper()
	ring, err := store.Get(s.t.Context(), s.store, keys.Keyring())
	if err != nil && !errs.Is(err, errs.NotFound) {
		s.t.Fatal(err)
	}
	return ring
}

// versions returns the versions that seal each record, by its key.
func (s *site) versions() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	note := func(key string, sealed []byte) {
		if len(sealed) > 0 {
			out[key] = seal.VersionOf(sealed)
		}
	}
	secrets, _, err := store.List(s.t.Context(), s.store, keys.Secrets())
	for _, one := range secrets {
		note("secret "+one.Name, one.Sealed)
	}
	sources, _, err2 := store.List(s.t.Context(), s.store, keys.TemplateSources())
	for _, one := range sources {
		note("source "+one.Name, one.Sealed)
	}
	notices, _, err3 := store.List(s.t.Context(), s.store, keys.Notices())
	for _, one := range notices {
		note("notice "+one.Name, one.Sealed)
	}
	factors, _, err4 := store.List(s.t.Context(), s.store, keys.Factors())
	for _, one := range factors {
		note("factor", one.Sealed)
	}
	signing, _, err5 := store.List(s.t.Context(), s.store, keys.SealedKeys())
	for _, one := range signing {
		note("signing key", one.Sealed)
		note("previous signing key", one.Previous)
	}
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		s.t.Fatal(err)
	}
	return out
}

// value returns the value of a stored secret, as a gateway gives it to a node.
func (s *site) value(name string) (string, error) {
	record, err := store.Get(s.t.Context(), s.store, keys.Secret(name))
	if err != nil {
		return "", err
	}
	return reveal.NewOpener(s.gateway.ring).Stored(record, content.SecretRef{Kind: content.SecretStored, Of: name})
}

func (s *site) wantValue(name, want string) {
	s.t.Helper()
	if got, err := s.value(name); got != want || err != nil {
		s.t.Errorf("secret %s is %q, %v, want %q", name, got, err, want)
	}
}

func (s *site) wantAll(version string) {
	s.t.Helper()
	for key, by := range s.versions() {
		if by != version {
			s.t.Errorf("%s is sealed by %q, want %q", key, by, version)
		}
	}
}

func TestANewClusterSealsWithAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	s := newSite(t, sealedBy(sealKey))
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	ring := s.keyring()
	if len(ring.Versions) != 1 || ring.Resealing || ring.Versions[0].WrappedBy != s.gateway.ring.KeyIDs()[0] {
		t.Errorf("%+v", ring)
	}
	s.wantAll(ring.Current)
	s.wantValue("db", recognisable)
	s.do("GET", sealing, nil).want(200).is("current", ring.Current).is("rotating", false).is("versions.0.retired", false).is("wrappingKeys.0", ring.Versions[0].WrappedBy)
	for _, text := range []string{sealKey, secret, recognisable} {
		if found := storetest.Holding(t, s.etcd.Endpoint, text); len(found) > 0 {
			t.Errorf("etcd has %q in %v", text, found)
		}
	}
	record, err := store.Get(t.Context(), s.store, keys.Secret("db"))
	if err != nil {
		t.Fatal(err)
	}
	stolen := seal.NewBox(secret, content.SecretsKind).About("secret/db")
	if plain, err := stolen.Open(record.Sealed); err == nil {
		t.Errorf("the cluster secret opens it: %q", plain)
	}
	other := newSiteOn(t, s.etcd, sealedBy(sealKey))
	other.wantValue("db", recognisable)
	for _, role := range []string{"VIEWER", "OPERATOR"} {
		eve := s.user("eve"+strings.ToLower(role), role)
		eve.do("GET", sealing, nil).want(403)
		eve.do("POST", rotations, nil).want(403)
	}
}

// TestARotationSealsEverythingAgain begins with a cluster that seals with its cluster secret.
func TestARotationSealsEverythingAgain(t *testing.T) {
	t.Parallel()
	s, wait := ahead(t)
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	s.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	s.do("POST", "/api/v1/notices", map[string]any{"name": "ops", "url": "https://hooks.example/very-secret", "events": []string{"*"}, "enabled": false}).want(201)
	s.do("POST", "/api/v1/auth/keys/rotate", nil).want(200)
	vera := s.user("vera", "VIEWER")
	phone, _ := vera.enrol(adminPassword, s.gateway.cfg.Now)
	s.defining("lobby", secretVariable("DB", content.ScopeGroup))
	s.group("lobby", map[string]any{"templates": []string{"lobby"}, "variableValues": map[string]string{"DB": recognisable}})
	s.wantAll("")
	if n := len(s.versions()); n != 6 {
		t.Fatalf("%d sealed parts: %v", n, s.versions())
	}
	s.do("POST", rotations, nil).want(422).naming("seal.key")

	next := newSiteOn(t, s.etcd, sealedBy(sealKey), func(c *Config) { c.Now = s.gateway.cfg.Now }).as(s.token)
	next.do("GET", sealing, nil).want(200).is("current", nil).is("versions", []any{})
	next.do("POST", rotations, nil).want(409).naming("does not have the key")
	s.stop()
	gone(next, s.gateway.cfg.Replica)
	for range 2 {
		done := next.do("POST", rotations, nil).want(200).is("rotating", false).is("unreadable", []any{}).is("resealed", 5)
		ring := next.keyring()
		done.is("current", ring.Current)
		next.wantAll(ring.Current)
		for _, v := range ring.Versions {
			if v.Retired() == (v.ID == ring.Current) {
				t.Errorf("version %+v, the current one is %s", v, ring.Current)
			}
		}
		next.wantValue("db", recognisable)
		next.do("GET", "/api/v1/auth/me", nil).want(200) // tokens of before are valid
		wait(30 * time.Second)
		triesCode(next, "vera", adminPassword, phone.code()).want(200)
		next.do("PATCH", "/api/v1/notices/ops", `{"enabled":false,"events":["GROUP_CREATED"]}`).want(200) // keeps the sealed URL
		next.do("POST", "/api/v1/template-sources/repo/sync", nil).want(202)                              // keeps the credentials
		next.do("GET", "/api/v1/template-sources/repo", nil).want(200).is("credentialNames", []string{"token", "webhook"})
		next.wantAll(ring.Current)
	}
	g, _ := next.view.Snapshot().Groups.Get("lobby")
	ref, err := content.ParseSecretRef(g.Spec.Variables["DB"])
	if err != nil {
		t.Fatal(err)
	}
	if value, err := reveal.NewOpener(next.gateway.ring).Sealed("lobby", "DB", ref); value != recognisable || err != nil {
		t.Errorf("the value in a group is %q, %v", value, err)
	}
	next.do("GET", "/api/v1/audit?action=sealing-key.rotate", nil).want(200).is("total", 2).is("data.0.username", "admin")
}

// gone waits until a gateway's session is closed.
func gone(s *site, replica string) {
	s.t.Helper()
	await.That(s.t, "the end of the session of "+replica, func() string {
		_, open := s.view.Snapshot().Sessions.Get(serviceName + "/" + replica)
		return await.Unless(!open, "it is open")
	})
}

func TestARotationWaitsForTheKeyEverywhere(t *testing.T) {
	t.Parallel()
	s := newSite(t, sealedBy(sealKey))
	first := s.keyring().Current
	session := cluster.Session{Service: "templatesvc", Replica: "t-1"}
	s.commit(store.Create(keys.Session("templatesvc", "t-1"), session))
	s.do("POST", rotations, nil).want(409).naming("templatesvc t-1 does not have the key")
	session.SealKeys = s.gateway.ring.KeyIDs()
	at, _ := s.view.Snapshot().Sessions.Get("templatesvc/t-1")
	s.commit(store.Replace(keys.Session("templatesvc", "t-1"), session, at.ModRev))

	s.commit(store.Create(keys.Node("old"), fleet.Node{ID: "old"})) // its agent does not run
	s.commit(store.Create(keys.Node("joined"), fleet.Node{ID: "joined", SealKeys: []string{cluster.AsksForSecrets}}), store.Create(keys.NodeSession("joined"), fleet.NodeSession{}))
	s.commit(store.Create(keys.Node("n1"), fleet.Node{ID: "n1", SealKeys: []string{"another"}}), store.Create(keys.NodeSession("n1"), fleet.NodeSession{}))
	s.do("POST", rotations, nil).want(409).naming("the agent of node n1 does not have the key")
	if s.keyring().Current != first {
		t.Error("a refused rotation has changed the key")
	}
	n, _ := s.view.Snapshot().Nodes.Get("n1")
	s.commit(store.Replace(keys.Node("n1"), fleet.Node{ID: "n1", SealKeys: s.gateway.ring.KeyIDs()}, n.ModRev))
	s.do("POST", rotations, nil).want(200)
}

func TestARotationThatWasCutOffContinues(t *testing.T) {
	t.Parallel()
	var cut atomic.Pointer[context.CancelFunc]
	s := newSite(t, sealedBy(sealKey), func(c *Config) {
		c.View.Subscribe(func(b view.Batch) {
			if cancel := cut.Load(); cancel != nil && slices.ContainsFunc(b.Changes, func(c view.Change) bool { return c.Kind == view.KindSealedKey }) {
				(*cancel)()
			}
		})
	})
	other := newSiteOn(t, s.etcd, sealedBy(sealKey)).as(s.token)
	const n = 150
	var writes sync.WaitGroup
	for part := range 5 {
		writes.Go(func() {
			for i := part; i < n; i += 5 {
				s.do("PUT", fmt.Sprintf("/api/v1/secrets/s%d", i), map[string]any{"value": fmt.Sprint("value ", i)}).want(201)
			}
		})
	}
	writes.Wait()
	before := s.keyring().Current
	ctx, cancel := context.WithCancel(t.Context())
	cut.Store(&cancel) // the signing key is sealed first
	_, err := s.gateway.operate.RotateSealing(ctx, txn.Actor{User: "admin"})
	if err == nil {
		t.Fatal("it was not cut off")
	}
	half := s.keyring()
	if !half.Resealing || half.Current == before || half.Versions[0].Retired() {
		t.Fatalf("%+v", half)
	}
	by := map[string]int{}
	for _, v := range s.versions() {
		by[v]++
	}
	if by[before] == 0 || by[half.Current] == 0 {
		t.Errorf("records by version: %v; want some of both", by)
	}
	other.do("GET", sealing, nil).want(200).is("rotating", true)
	s.wantValue("s1", "value 1")
	other.wantValue("s1", "value 1")
	other.do("PUT", "/api/v1/secrets/s1", map[string]any{"value": "changed"}).want(200)
	other.do("POST", rotations, nil).want(200).is("current", half.Current).is("rotating", false)
	other.do("GET", "/api/v1/audit?action=sealing-key.rotate", nil).want(200).is("total", 2)
	s.wantAll(half.Current)
	s.wantValue("s1", "changed")
	for i := 2; i < n; i++ {
		s.wantValue(fmt.Sprintf("s%d", i), fmt.Sprint("value ", i))
	}
}

func TestAGatewayThatLagsBehindSealsWithNoReplacedKey(t *testing.T) {
	t.Parallel()
	a := newSite(t, sealedBy(sealKey))
	b := newSiteOn(t, a.etcd, sealedBy(sealKey)).as(a.token)
	before := a.keyring().Current
	a.do("POST", rotations, nil).want(200)
	if b.gateway.ring.Current() != before {
		t.Fatal("the other gateway does not lag behind")
	}
	old := content.Secret{Name: "old", Version: 1, Sealed: b.gateway.ring.Records(content.SecretsKind).About("secret/old").Seal([]byte(`{"":"x"}`))}
	write := store.Create(keys.Secret("old"), old)
	for what := range 2 { // first it does not know of the rotation, then it does
		if _, err := b.gateway.operate.Commit(t.Context(), store.Txn{Writes: []store.Write{write}}, txn.Entry{}); !errs.Is(err, errs.Conflict) {
			t.Errorf("%d: a value that the replaced key sealed is stored: %v", what, err)
		}
	}
	b.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	a.do("POST", rotations, nil).want(200)
	b.do("PUT", "/api/v1/template-sources/repo", repository).want(201)
	a.do("POST", rotations, nil).want(200)
	b.do("POST", "/api/v1/auth/keys/rotate", nil).want(200)
	a.wantAll(a.keyring().Current)
	a.do("POST", rotations, nil).want(200)
	b.wantValue("db", recognisable)
	b.do("GET", "/api/v1/auth/me", nil).want(200)
}

// TestRotationsUnderLoad rotates at two gateways while clients write and read secrets at both.
func TestRotationsUnderLoad(t *testing.T) {
	t.Parallel()
	a := newSite(t, sealedBy(sealKey))
	b := newSiteOn(t, a.etcd, sealedBy(sealKey)).as(a.token)
	gateways := []*site{a, b}
	for i := range 40 {
		a.do("PUT", fmt.Sprintf("/api/v1/secrets/still%d", i), map[string]any{"value": "still"}).want(201)
	}
	ended := make(chan struct{})
	var load, rotating sync.WaitGroup
	done := make([]int, 8)
	for w := range done {
		load.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				g, name, value := gateways[i%2], fmt.Sprintf("busy%d", w), fmt.Sprintf("value %d", i)
				retried(t, func() (int, string) {
					r, err := g.try("PUT", "/api/v1/secrets/"+name, map[string]any{"value": value})
					if err != nil {
						return 0, err.Error()
					}
					return r.status, r.raw
				})
				for _, g := range gateways {
					if got, err := g.value(name); got != value || err != nil {
						t.Errorf("secret %s is %q, %v, want %q", name, got, err, value)
					}
					if got, err := g.value(fmt.Sprintf("still%d", i%40)); got != "still" || err != nil {
						t.Errorf("a secret is %q, %v", got, err)
					}
				}
				done[w]++
			}
		})
	}
	for _, g := range gateways {
		rotating.Go(func() {
			for range 5 {
				retried(t, func() (int, string) {
					r, err := g.try("POST", rotations, nil)
					if err != nil {
						return 0, err.Error()
					}
					return r.status, r.raw
				})
			}
		})
	}
	rotating.Wait()
	close(ended)
	load.Wait()
	if slices.Min(done) == 0 {
		t.Errorf("a client did nothing: %v", done)
	}
	ring := a.keyring()
	if ring.Resealing {
		t.Error("a rotation has not ended")
	}
	a.wantAll(ring.Current)
	for i := range 40 {
		b.wantValue(fmt.Sprintf("still%d", i), "still")
	}
	t.Logf("%v writes during %d rotations", done, len(ring.Versions)-1)
}

// retried makes a request, again after a conflict, as clients do. Any other failure fails the test.
func retried(t *testing.T, try func() (status int, text string)) {
	t.Helper()
	for range 50 {
		switch status, text := try(); status {
		case http.StatusOK, http.StatusCreated:
			return
		case http.StatusConflict:
		default:
			t.Errorf("%d %s", status, text)
			return
		}
	}
	t.Error("only conflicts")
}

func TestAWrongKeyFileStopsTheGatewayAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	s := newSite(t, sealedBy(sealKey))
	for name, test := range map[string]struct{ key, want string }{
		"none":    {"", "pass the key file of the cluster's gateways"},
		"another": {sealKey2, "use the key file of the cluster's gateways"},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := New(Config{
				Store: s.store, View: newUnstartedView(s), Log: s.gateway.cfg.Log, Listen: "127.0.0.1:0", Replica: "other " + name,
				ClusterSecret: secret, SealKey: test.key, AdminPassword: "y",
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := runWithView(t, g); !errs.Is(err, errs.Invalid) || errs.FieldOf(err) != seal.Field || !strings.Contains(errs.MessageOf(err), test.want) {
				t.Errorf("err = %v", err)
			}
		})
	}
	_, err := New(Config{
		Store: s.store, View: newUnstartedView(s), Log: s.gateway.cfg.Log, Listen: "127.0.0.1:0", Replica: "short",
		ClusterSecret: secret, SealKey: "short", AdminPassword: "y",
	})
	if errs.FieldOf(err) != seal.Field {
		t.Errorf("a short key: %v", err)
	}
}

func TestTheKeyEncryptionKeyIsReplacedByARotation(t *testing.T) {
	t.Parallel()
	s := newSite(t, sealedBy(sealKey))
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	both := newSiteOn(t, s.etcd, sealedBy(sealKey2+"\n"+sealKey)).as(s.token)
	both.do("POST", rotations, nil).want(409).naming(s.gateway.cfg.Replica) // it could not open the versions any more
	s.stop()
	gone(both, s.gateway.cfg.Replica)
	both.do("POST", rotations, nil).want(200)
	only := newSiteOn(t, s.etcd, sealedBy(sealKey2))
	only.wantValue("db", recognisable)
	only.as(s.token).do("GET", "/api/v1/auth/me", nil).want(200)
}

// TestABackupFromBeforeARotationIsRestored needs the key file alone: the versions are in the backup.
func TestABackupFromBeforeARotationIsRestored(t *testing.T) {
	t.Parallel()
	s := newSite(t, sealedBy(sealKey))
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	before := s.keyring().Current
	s.etcd.Stop()
	backup := s.etcd.Backup(t)
	s.etcd.Restart(t)
	s.do("POST", rotations, nil).want(200)
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": "later"}).want(200)
	s.stop()
	s.etcd.Stop()
	s.etcd.Restore(t, backup)
	s.etcd.Restart(t)
	again := newSiteOn(t, s.etcd, sealedBy(sealKey))
	if again.keyring().Current != before {
		t.Errorf("the version is %s, want %s", again.keyring().Current, before)
	}
	again.wantValue("db", recognisable)
	again = again.as(again.login("admin", adminPassword))
	again.do("POST", rotations, nil).want(200)
	again.wantValue("db", recognisable)
}

// TestARecordThatNoKeyOpensStaysAndIsNamed covers records of a keyring that was lost.
func TestARecordThatNoKeyOpensStaysAndIsNamed(t *testing.T) {
	t.Parallel()
	s := newSite(t, sealedBy(sealKey))
	s.do("PUT", "/api/v1/secrets/db", map[string]any{"value": recognisable}).want(201)
	foreign := seal.NewBox(strings.Repeat("x", 32), content.SecretsKind).About("secret/lost").Seal([]byte(`{"":"x"}`))
	lost := content.Secret{Name: "lost", Version: 1, Keys: []string{""}, Sealed: foreign}
	s.commit(store.Create(keys.Secret("lost"), lost))
	s.do("POST", rotations, nil).want(200).is("unreadable", []string{"secrets/lost"}).is("rotating", false)
	s.wantValue("db", recognisable)
	kept, err := store.Get(t.Context(), s.store, keys.Secret("lost"))
	if err != nil {
		t.Fatal(err)
	}
	a, _ := json.Marshal(kept)
	b, _ := json.Marshal(lost)
	if string(a) != string(b) {
		t.Errorf("%s, want %s", a, b)
	}
	s.do("PUT", "/api/v1/secrets/lost", map[string]any{"value": "found"}).want(200)
	s.wantValue("lost", "found")
}
