package enroll

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/pause"
	"github.com/orreryhq/orrery/libs/pki"
	"github.com/orreryhq/orrery/libs/trust"
)

const (
	// Life is how long the certificate of a node or a service is valid by default. Longer ones are renewed as early.
	Life = 24 * time.Hour
	// Grace is how long after its end the certificate of a node can still be renewed. It is for hosts that were off.
	Grace = 30 * 24 * time.Hour
	// firstRetry and lastRetry are the first and the longest pause after a failed renewal.
	firstRetry, lastRetry = time.Second, time.Minute
	// lookEvery is how often the certificate and the clock are looked at: the file may be replaced, and the clock set.
	lookEvery = time.Minute
)

// Renewal renews a certificate at two thirds of its life.
type Renewal struct {
	// Ask returns a certificate for the key of a pki.SigningRequest, such as Client.Renew.
	Ask func(ctx context.Context, csr []byte) (Certificate, error)
	// Offered reports whether a gateway can be asked now. Nil means always.
	Offered     func() bool
	Credentials *trust.Credentials
	Now         func() time.Time
	Log         *slog.Logger
}

// Due returns when a certificate is to be renewed. That of orrery pki issue, which is valid for a year, becomes a
// short-lived one.
func Due(b *pki.Bundle) time.Time {
	issued := b.NotBefore().Add(pki.Backdate)
	return issued.Add(min(b.NotAfter().Sub(issued), Life) * 2 / 3)
}

// wait returns how long a certificate needs no renewal. One that is not valid yet, because the clock of its issuer was
// ahead, needs it now.
func wait(b *pki.Bundle, now time.Time) time.Duration {
	if now.Before(b.NotBefore()) {
		return 0
	}
	return Due(b).Sub(now)
}

// Run renews the certificate until ctx ends.
func (r Renewal) Run(ctx context.Context) error {
	retry := firstRetry
	var alone sync.Once
	for ctx.Err() == nil {
		b := r.Credentials.Bundle()
		if left := wait(b, r.Now()); left > 0 {
			retry = firstRetry
			pause.Jittered(ctx, min(left, lookEvery))
			r.Credentials.Save()
			continue
		}
		switch {
		case r.Offered == nil || r.Offered():
			r.attempt(ctx)
		case retry == lastRetry: // not at the start, when gateways are not known yet
			alone.Do(func() {
				r.Log.Info("no gateway renews the certificates of services: set services.authority of gateways, or replace trust.file in time", "notAfter", b.NotAfter())
			})
		}
		pause.Jittered(ctx, retry)
		retry = min(2*retry, lastRetry)
	}
	return errs.Wrap("enroll.Run", ctx.Err())
}

// attempt renews the certificate once.
func (r Renewal) attempt(ctx context.Context) {
	err := r.Renew(ctx)
	b := r.Credentials.Bundle()
	if err == nil && wait(b, r.Now()) <= 0 {
		err = errs.New(errs.Invalid, "the new certificate is due at once, from %s to %s: correct the clock of this host or of the gateway", show(b.NotBefore()), show(b.NotAfter()))
	}
	if err != nil && ctx.Err() == nil {
		r.Log.Warn("the certificate is not renewed, trying again", "identity", b.Identity().String(), "notAfter", b.NotAfter(), "error", err)
	}
}

func show(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// Renew replaces the bundle by one with a new key and a new certificate. Its errors are those of Ask, and Unavailable if
// the answer is not usable.
func (r Renewal) Renew(ctx context.Context) error {
	own := r.Credentials.Bundle()
	request, err := pki.NewSigningRequest()
	if err != nil {
		return err
	}
	got, err := r.Ask(ctx, request.CSR)
	if err != nil {
		return err
	}
	text, err := got.bundle(request.Key, own.Identity())
	if err != nil {
		return err
	}
	return errs.WrapAs(errs.Unavailable, "enroll.Renew", r.Credentials.Replace(own, text))
}
