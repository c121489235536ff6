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

	"github.com/orreryhq/orrery/apigateway/internal/bell"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/seal"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

// Config is what the package needs; all but the admin's password is required.
type Config struct {
	Store *store.Client
	View  *view.View
	Log   *slog.Logger
	Now   func() time.Time
	// Session is how long the token of a login is good for now; nil: SessionTTL.
	Session func() time.Duration
	// Audited commits a change of a user on behalf of somebody, with an entry of it in the audit.
	Audited func(ctx context.Context, by, action, user, details string, writes ...store.Write) error
	// ClusterSecret seals the signing key.
	ClusterSecret string
	// AdminPassword is the first user's; when empty one is generated and written to AdminPasswordFile.
	AdminPassword, AdminPasswordFile string
	// PasswordCost is the work of hashing a password.
	PasswordCost Cost
}

// Service knows users and their tokens. Start it before use.
type Service struct {
	cfg    Config
	hasher hasher
	signer signer
	box    seal.Box
	keys   atomic.Pointer[ring] // not nil after Start
	// behind are what is to be written behind requests, by Run.
	behind chan func(context.Context) error
	// changed rings when somebody may have other rights than before.
	changed *bell.Bell
	// lives rings when an instance's own token may have ended.
	lives *bell.Bell
}

// Identity is who makes a request.
type Identity struct {
	User string
	// UserID is the user's fleet.User.ID.
	UserID string
	Role   string
	// Permissions are what the role may do now.
	Permissions []Permission
	// TokenID is the API token's, empty for the token of a login.
	TokenID string
	// Public is true for an API token that may be used so often only.
	Public bool

	credential fleet.Credential
	// signedInAt is of a login.
	signedInAt time.Time
	token      *fleet.APIToken
	// ofRole is what the user's role may, of which the token's scopes are a part.
	ofRole []Permission
}

// Can reports whether the identity has a permission.
func (i Identity) Can(p Permission) bool { return slices.Contains(i.Permissions, p) }

// Lacks says of a permission that the identity has not who lacks it: the role, or only the
// API token, whose scopes do not name what its user's role may. It ends a sentence, such as
// "the role VIEWER lacks the permission groups.create".
func (i Identity) Lacks(p Permission) string {
	if i.token != nil && slices.Contains(i.ofRole, p) {
		return fmt.Sprintf("the API token's scopes lack the permission %s, which its user's role %s has: send a token that names it, or log in", p, i.Role)
	}
	return fmt.Sprintf("the role %s lacks the permission %s", i.Role, p)
}

// New makes a service that knows nobody yet. It subscribes to the view.
func New(cfg Config) *Service {
	if cfg.Session == nil {
		cfg.Session = func() time.Duration { return SessionTTL }
	}
	s := &Service{
		cfg: cfg, hasher: newHasher(min(4, runtime.GOMAXPROCS(0)), maxWaiting, cfg.PasswordCost), behind: make(chan func(context.Context) error, maxBehind),
		changed: bell.New(view.KindUser, view.KindRole, view.KindRevocation, view.KindAPIToken),
		lives:   bell.New(view.KindStatus, view.KindIntent, view.KindCredential, view.KindRevokedNode),
	}
	cfg.View.Subscribe(s.changed.Hear)
	cfg.View.Subscribe(s.lives.Hear)
	return s
}

// Start makes sure that there is a signing key and a first user. The view must
// run. Invalid when the cluster secret is not the cluster's, or when there is no
// way to tell the first user's password.
func (s *Service) Start(ctx context.Context) error {
	if err := s.firstKey(ctx); err != nil {
		return err
	}
	s.signer = signer{ring: s.ring, now: s.cfg.Now, life: s.cfg.Session, proven: newProven()}
	return s.bootstrap(ctx)
}

// Login is the user whose password it is. Unauthenticated when user or password are wrong.
func (s *Service) Login(ctx context.Context, username, password string) (*fleet.User, error) {
	user, known := s.cfg.View.Snapshot().Users.Get(strings.ToLower(username))
	hash := s.hasher.nobody()
	if known {
		hash = user.PasswordHash
	}
	ok, err := s.hasher.verify(ctx, password, hash)
	if err != nil {
		return nil, err
	}
	if !known || !ok {
		return nil, errs.New(errs.Unauthenticated, "user name or password is wrong")
	}
	if s.hasher.dated(user.PasswordHash) {
		s.rehash(ctx, user, password)
	}
	return user, nil
}

// Refresh is the login of a token, without a refresh token, for Tokens to make another one.
// Unauthenticated when the login has ended since it was judged: the body of a request may have
// taken long.
func (s *Service) Refresh(who Identity) (fleet.Login, error) {
	user, ok := s.User(who.User)
	if _, err := s.Judge(who.credential); err != nil {
		return fleet.Login{}, err
	}
	l := fleet.Login{ID: who.credential.Login, SignedInAt: who.signedInAt}
	if ok {
		l.UserID, l.Epoch = user.ID(), who.credential.Epoch
	}
	if !l.Of(user, s.cfg.Now()) {
		return fleet.Login{}, errs.New(errs.Unauthenticated, "the login has ended: log in again")
	}
	return l, nil
}

// User is a user's record.
func (s *Service) User(name string) (*fleet.User, bool) { return s.cfg.View.Snapshot().Users.Get(name) }

// Authenticate says who an Authorization header names. Unauthenticated when it is
// missing, not a bearer, or its token is not good. Unavailable when this gateway has yet to see
// the change that the token was issued after, and does not in a few seconds.
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
	credential := fleet.Credential{User: c.Subject, Login: c.login(), Epoch: c.Epoch, Until: c.ExpiresAt.Time}
	if err := s.catchUp(ctx, credential); err != nil {
		return Identity{}, err
	}
	who, err := s.Judge(credential)
	if who.signedInAt = time.Unix(c.SignedInAt, 0).UTC(); c.SignedInAt == 0 {
		who.signedInAt = s.ring().loginsSince
	}
	return who, err
}

// catchUpTime bounds the time that a request waits for the view.
const catchUpTime = 4 * time.Second

// catchUp has the view catch up with etcd when a credential is of a later epoch than its user: then
// another gateway has changed the user just now, or etcd was restored from an older backup.
func (s *Service) catchUp(ctx context.Context, c fleet.Credential) error {
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
