package apigateway

import (
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

var toldToken = regexp.MustCompile(`user=(\S+) token=(\S+)`)

func TestAForgottenPasswordIsResetOnceByItsToken(t *testing.T) {
	t.Parallel()
	log := new(await.Text)
	edit := func(c *Config) { c.Log, c.Reset.Log = slog.New(slog.NewTextHandler(log, nil)), true }
	a := newSite(t, edit)
	b := newSiteOn(t, a.etcd, edit)
	a.do("POST", "/api/v1/users", `{"username":"bob","password":"correct horse","role":"VIEWER","email":"bob@example.org"}`).want(201)
	bob := a.as(a.login("bob", "correct horse"))
	for range 5 {
		tries(a, "bob", "forgotten").want(401)
	}
	anybody := b.as("")
	request := func(email string) {
		anybody.do("POST", "/api/v1/auth/password-reset/request", map[string]string{"email": email}).want(202).is("status", "accepted")
	}
	complete := func(token, password string) *reply {
		return anybody.do("POST", "/api/v1/auth/password-reset/complete", map[string]string{"token": token, "newPassword": password})
	}
	eventually(t, b.as(bob.token), "GET", "/api/v1/auth/me", 200)
	for _, email := range []string{"", "nobody@example.org", "BOB@example.org", "bob@example.org"} {
		request(email)
	}
	var told []string
	await.That(t, "bob is told", func() string {
		told = toldToken.FindStringSubmatch(log.String())
		return await.Unless(told != nil && told[1] == "bob", "%s", log)
	})
	token := told[2]
	anybody.do("POST", "/api/v1/auth/password-reset/complete", `{"token":"x"}`).want(422).naming("newPassword")
	for _, wrong := range []string{"", "x", token[1:], strings.Repeat("A", len(token)), token[:len(token)-1] + "-"} {
		complete(wrong, "battery staple").want(400).is("error.code", "INVALID_TOKEN")
	}
	complete(token, "short").want(422).naming("newPassword")

	var all sync.WaitGroup
	statuses := make([]int, 5)
	for n := range statuses {
		all.Go(func() { statuses[n] = complete(token, "battery staple").status })
	}
	all.Wait()
	good := 0
	for _, status := range statuses {
		if status == 200 {
			good++
		} else if status != 400 {
			t.Errorf("answered %d", status)
		}
	}
	if good != 1 {
		t.Errorf("the token was good %d times", good)
	}
	eventually(t, bob, "GET", "/api/v1/auth/me", 401)
	tries(anybody, "bob", "battery staple").want(200) // the reset also ends bob's lockout
	if told := toldToken.FindAllString(log.String(), -1); len(told) != 1 {
		t.Errorf("told %q", told)
	}
}

func TestPasswordResetNeedsDelivery(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.do("POST", "/api/v1/auth/password-reset/request", `{"email":"x"}`).want(404).is("error.code", "NOT_ENABLED")
	s.do("POST", "/api/v1/auth/password-reset/complete", `{"token":"x","newPassword":"correct horse"}`).want(404).is("error.code", "NOT_ENABLED")
}

func TestALetterLeadsToThePageOrHasTheToken(t *testing.T) {
	t.Parallel()
	u := account.User{Username: "bob"}
	if got := (PasswordReset{URL: "https://a.example/reset?lang=en"}).letter(u, "T0", time.Hour); !strings.Contains(got, "\nhttps://a.example/reset?lang=en&token=T0\n") {
		t.Error(got)
	}
	if got := (PasswordReset{}).letter(u, "T0", time.Hour); !strings.Contains(got, "\nT0\n") || !strings.Contains(got, "60 minutes") {
		t.Error(got)
	}
}
