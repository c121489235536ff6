package enroll_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orreryhq/orrery/libs/enroll"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/proctest"
	"github.com/orreryhq/orrery/libs/trust"
	"github.com/orreryhq/orrery/libs/trust/trusttest"
)

// issued is a bundle of a scheduler with its authority.
type issued struct {
	authority *pki.Authority
	path      string
	*trust.Credentials
}

// issue writes a bundle that is valid for some time from now on, by the clock of a synctest bubble.
func issue(t *testing.T, life time.Duration) issued {
	t.Helper()
	now := time.Now()
	a, err := pki.NewAuthority("test", now, now.Add(10*365*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	who := pki.Identity{Service: pki.Scheduler}
	p, err := a.Issue(pki.Request{Name: who.Path(), Identity: who, Server: true, Client: true, Now: now, Until: now.Add(life)})
	if err != nil {
		t.Fatal(err)
	}
	i := issued{authority: a, path: filepath.Join(t.TempDir(), "trust.pem")}
	trusttest.Write(t, i.path, pki.NewBundle(p, a.Pair().Cert))
	if i.Credentials, err = trust.Open(i.path, time.Now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return i
}

// renewer issues as a gateway does.
func (i issued) renewer(life time.Duration) enroll.Issuer {
	return enroll.Issuer{Authority: i.authority, Life: life, Bundle: i.Bundle, Now: time.Now}
}

func TestALongCertificateIsRenewedLikeOneOfADay(t *testing.T) {
	for name, c := range map[string]struct{ life, due time.Duration }{
		"a year":        {365 * 24 * time.Hour, 16 * time.Hour},
		"a day":         {24 * time.Hour, 16 * time.Hour},
		"three hours":   {3 * time.Hour, 2 * time.Hour},
		"three minutes": {3 * time.Minute, 2 * time.Minute},
	} {
		start := time.Now()
		if due := enroll.Due(issue(t, c.life).Bundle()).Sub(start); due < c.due-2*time.Second || due > c.due+2*time.Second {
			t.Errorf("%s: due after %v, want %v", name, due, c.due)
		}
	}
}

func TestACertificateIsRenewedBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, asked := issue(t, 24*time.Hour), []time.Duration{}
		start, failing := time.Now(), 5
		ctx, cancel := context.WithTimeout(t.Context(), 10*24*time.Hour)
		defer cancel()
		_ = enroll.Renewal{
			Ask: func(_ context.Context, csr []byte) (enroll.Certificate, error) {
				asked = append(asked, time.Since(start))
				if len(asked) <= failing {
					return enroll.Certificate{}, errors.New("no gateway answers")
				}
				if left := time.Until(i.Bundle().NotAfter()); left < 7*time.Hour {
					t.Errorf("renewed with %v left", left)
				}
				return i.renewer(enroll.Life).Issue(i.Bundle().Identity(), csr)
			},
			Credentials: i.Credentials, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		}.Run(ctx)
		if first := asked[0]; first < 16*time.Hour || first > 16*time.Hour+time.Minute {
			t.Errorf("first asked after %v", first)
		}
		if renewed := len(asked) - failing; renewed < 13 || renewed > 15 {
			t.Errorf("renewed %d times in 10 days, at %v", renewed, asked)
		}
	})
}

func TestACertificateOfAWrongClockIsReplacedOnceTheClockIsRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, ahead := issue(t, 24*time.Hour), new(atomic.Int64)
		ahead.Store(int64(20 * time.Hour))
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		issuer := i.renewer(enroll.Life)
		issuer.Now = now
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		credentials, err := trust.Open(i.path, now, slog.New(slog.DiscardHandler)) // a gateway issues its own
		if err != nil {
			t.Fatal(err)
		}
		_ = enroll.Renewal{
			Ask: func(_ context.Context, csr []byte) (enroll.Certificate, error) {
				defer ahead.Store(0)
				return issuer.Issue(credentials.Bundle().Identity(), csr)
			},
			Credentials: credentials, Now: now, Log: slog.New(slog.DiscardHandler),
		}.Run(ctx)
		if b := credentials.Bundle(); b.VerifyOwn(time.Now()) != nil {
			t.Errorf("it is valid from %v to %v, and now is %v", b.NotBefore(), b.NotAfter(), time.Now())
		}
	})
}

func TestAServiceThatNobodyRenewsSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, offered := issue(t, 365*24*time.Hour), new(atomic.Bool)
		var log proctest.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- enroll.Renewal{
				Ask: func(_ context.Context, csr []byte) (enroll.Certificate, error) {
					return i.renewer(enroll.Life).Issue(i.Bundle().Identity(), csr)
				},
				Offered: offered.Load, Credentials: i.Credentials, Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)),
			}.Run(ctx)
		}()
		<-time.After(30 * 24 * time.Hour)
		synctest.Wait()
		if said := log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "level=INFO msg=\"no gateway renews") {
			t.Errorf("it says:\n%s", said)
		}
		before := i.Bundle().NotAfter()
		offered.Store(true)
		<-time.After(2 * time.Minute)
		synctest.Wait()
		if after := i.Bundle().NotAfter(); !after.Before(before) {
			t.Errorf("it is not renewed when a gateway offers it: valid until %v", after)
		}
		cancel()
		<-ended
	})
}
