package auth

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/stream/notify"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config has what the Service needs. All fields except the admin's password are required.
type Config struct {
	Store *store.Client
	View  *view.View
	Log   *slog.Logger
	Now   func() time.Time
	// Session returns the current lifetime of access tokens; nil means SessionTTL.
	Session func() time.Duration
	// Audited commits a change of a user together with an audit entry.
	Audited func(ctx context.Context, by, action, user, details string, writes ...store.Write) error
	// Ring seals the signing key.
	Ring *seal.Ring
	// AdminPassword is the first user's password. If empty, one is generated and written to AdminPasswordFile.
	AdminPassword, AdminPasswordFile string
	// PasswordCost is the cost of hashing a password.
	PasswordCost Cost
}

// Service authenticates users and instances. Call Start before use.
type Service struct {
	cfg    Config
	hasher hasher
	signer signer
	box    seal.Box
	keys   atomic.Pointer[ring] // not nil after Start
	// background is the queue of writes for Run.
	background chan func(context.Context) error
	// userChanged signals that a user's permissions may have changed, scopeChanged also that the groups that
	// bindings match may have, instanceChanged that an instance's own token may have ended.
	userChanged, scopeChanged, instanceChanged *notify.Changes
}

// Identity is an authenticated caller.
type Identity struct {
	User string
	// UserID is the user's fleet.User.ID.
	UserID string
	Role   string
	// Permissions are the current permissions in the whole fleet; after In, those in a group.
	Permissions []Permission
	// TokenID is the ID of the API token, empty for a login.
	TokenID string
	// Public is true for a PUBLIC API token, which has a lower rate limit.
	Public bool

	credential account.Credential
	// signedInAt is the start of the login.
	signedInAt time.Time
	token      *account.APIToken
	// ofUser has the permissions of the user in the whole fleet; a token's scopes are a subset.
	ofUser []Permission
	// grants are what bindings give in some groups.
	grants []grant
}

// Can reports whether the identity has a permission.
func (i Identity) Can(p Permission) bool { return slices.Contains(i.Permissions, p) }

// Has reports whether the identity has all the permissions.
func (i Identity) Has(permissions ...Permission) bool {
	for _, p := range permissions {
		if !i.Can(p) {
			return false
		}
	}
	return true
}

// Lacks describes a missing permission: either the role lacks it, or only the API token's scopes do. The
// text ends a sentence, such as "the role VIEWER lacks the permission groups.create".
func (i Identity) Lacks(p Permission) string {
	switch {
	case i.token != nil && slices.Contains(i.ofUser, p):
		return fmt.Sprintf("the API token's scopes lack the permission %s, which its user's role %s has: send a token that names it, or log in", p, i.Role)
	case i.Scoped():
		return fmt.Sprintf("the role %s lacks the permission %s, and no binding gives it here", i.Role, p)
	}
	return fmt.Sprintf("the role %s lacks the permission %s", i.Role, p)
}

// New returns a Service and subscribes it to the view.
func New(cfg Config) *Service {
	if cfg.Session == nil {
		cfg.Session = func() time.Duration { return SessionTTL }
	}
	users := []view.Kind{view.KindUser, view.KindRole, view.KindBinding, view.KindRevocation, view.KindAPIToken}
	s := &Service{
		cfg: cfg, hasher: newHasher(min(4, runtime.GOMAXPROCS(0)), maxWaiting, cfg.PasswordCost), background: make(chan func(context.Context) error, maxBackground),
		userChanged:     notify.New(users...),
		scopeChanged:    notify.New(append(users, view.KindGroup)...),
		instanceChanged: notify.New(view.KindStatus, view.KindIntent, view.KindCredential, view.KindRevokedNode),
	}
	cfg.View.Subscribe(s.userChanged.OnBatch)
	cfg.View.Subscribe(s.scopeChanged.OnBatch)
	cfg.View.Subscribe(s.instanceChanged.OnBatch)
	return s
}

// Start creates the signing key and the first user if necessary. The view must run. Start returns
// Invalid if the cluster secret is wrong, or if there is no way to set the first user's password.
func (s *Service) Start(ctx context.Context) error {
	if err := s.ensureKeys(ctx); err != nil {
		return err
	}
	s.signer = signer{ring: s.ring, now: s.cfg.Now, life: s.cfg.Session, cache: newTokenCache()}
	return s.bootstrap(ctx)
}

// Login returns the user if the password is correct, else Unauthenticated.
func (s *Service) Login(ctx context.Context, username, password string) (*account.User, error) {
	user, known := s.cfg.View.Snapshot().Users.Get(strings.ToLower(username))
	hash := s.hasher.dummy()
	if known && user.Local() {
		hash = user.PasswordHash
	}
	ok, err := s.hasher.verify(ctx, password, hash)
	if err != nil {
		return nil, err
	}
	if !known || !ok {
		return nil, errs.New(errs.Unauthenticated, "user name or password is wrong")
	}
	if s.hasher.outdated(user.PasswordHash) {
		s.rehash(ctx, user, password)
	}
	return user, nil
}

// Refresh returns the caller's login without its refresh token, so that Tokens can issue an access
// token. It returns Unauthenticated if the login has ended since authentication, for example while
// a slow body was read.
func (s *Service) Refresh(who Identity) (account.Login, error) {
	user, ok := s.User(who.User)
	if _, err := s.Judge(who.credential); err != nil {
		return account.Login{}, err
	}
	l := account.Login{ID: who.credential.Login, SignedInAt: who.signedInAt}
	if ok {
		l.UserID, l.Epoch = user.ID(), who.credential.Epoch
	}
	if !l.Of(user, s.cfg.Now()) {
		return account.Login{}, errs.New(errs.Unauthenticated, "the login has ended: log in again")
	}
	return l, nil
}

// User returns a user's record.
func (s *Service) User(name string) (*account.User, bool) {
	return s.cfg.View.Snapshot().Users.Get(name)
}

// Authenticate returns the identity of an Authorization header. It returns Unauthenticated if the header
// is missing, not a bearer token or not valid, and Unavailable if the token is newer than this
// gateway's view and the view does not catch up within a few seconds.
func (s *Service) Authenticate(ctx context.Context, header string) (Identity, error) {
	token, ok := bearer(header)
	switch {
	case !ok:
		return Identity{}, errs.New(errs.Unauthenticated, "log in, or send an API token, as Authorization: Bearer <token>")
	case strings.HasPrefix(token, tokenPrefix):
		return s.byToken(token)
	}
	c, err := s.signer.parse(token)
	if err != nil {
		return Identity{}, err
	}
	credential := account.Credential{User: c.Subject, Login: c.login(), Epoch: c.Epoch, Until: c.ExpiresAt.Time}
	if err := s.catchUp(ctx, credential); err != nil {
		return Identity{}, err
	}
	who, err := s.Judge(credential)
	if who.signedInAt = time.Unix(c.SignedInAt, 0).UTC(); c.SignedInAt == 0 {
		who.signedInAt = s.ring().loginsSince
	}
	return who, err
}

// catchUpTime limits how long a request waits for the view.
const catchUpTime = 4 * time.Second

// catchUp waits for the view if a credential's epoch is later than its user's: either another gateway
// has just changed the user, or etcd was restored from an older backup.
func (s *Service) catchUp(ctx context.Context, c account.Credential) error {
	if user, ok := s.User(c.User); !ok || c.Epoch <= user.Epoch {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpTime)
	defer cancel()
	rev, err := s.cfg.Store.Revision(ctx)
	if err == nil {
		_, err = s.cfg.View.WaitRev(ctx, rev)
	}
	if err != nil {
		return &errs.Error{
			Op: "auth.catchUp", Kind: errs.KindOf(err), Err: err,
			Message: "this gateway has yet to see the change of the user that the token was issued after: retry in a moment",
		}
	}
	return nil
}

func bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}
