package command

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/apigateway/internal/ops/txn"
	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet/account"
)

// The kinds of API keys.
const (
	keyAll    = "ALL"
	keyPublic = "PUBLIC"
)

func (*Interpreter) keyCommands() []command {
	return []command{
		{name: "key list", about: "list the API tokens", needs: []auth.Permission{auth.TokensView}, run: listKeys},
		{name: "key create", args: []string{"<id>", "<ALL|PUBLIC>"}, about: "create an API token, which is shown once; a PUBLIC one may only read", needs: []auth.Permission{auth.TokensCreate}, changes: true, run: createKey},
		{name: "key delete", args: []string{"<id>"}, about: "delete an API token", needs: []auth.Permission{auth.TokensRevoke}, changes: true, run: deleteKey},
	}
}

// kindOf returns the dialect's name of a token's kind.
func kindOf(t *account.APIToken) string {
	switch {
	case t.Public:
		return keyPublic
	case t.Scopes != nil:
		return "SCOPED"
	}
	return keyAll
}

// keys returns the tokens ordered by name.
func (c *call) keys() []*account.APIToken {
	var all []*account.APIToken
	for _, t := range c.snapshot.APITokens.All() {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *account.APIToken) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return all
}

func listKeys(_ context.Context, c *call) error {
	rows := [][]string{{"ID", "KIND", "USER", "MADE", "EXPIRES", "RECORD"}}
	for _, t := range c.keys() {
		expires := "never"
		if !t.ExpiresAt.IsZero() {
			expires = t.ExpiresAt.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{t.Name, kindOf(t), t.User, t.CreatedAt.UTC().Format(time.RFC3339), expires, t.ID})
	}
	if len(rows) == 1 {
		return c.say("there are no keys")
	}
	return c.table(rows)
}

func createKey(ctx context.Context, c *call) error {
	name, kind := c.arg(0), strings.ToUpper(c.arg(1))
	switch kind {
	case keyAll:
		admin, _ := auth.RoleOf(c.snapshot, auth.RoleAdmin)
		for _, p := range admin.Permissions {
			if !c.Who.Can(p) {
				return errs.New(errs.Denied, "you cannot create a key with all permissions, because you lack %s: make it PUBLIC", p)
			}
		}
	case keyPublic:
	default:
		return errs.New(errs.Malformed, "a key is ALL or PUBLIC, not %s", clip(c.arg(1)))
	}
	if slices.ContainsFunc(c.keys(), func(t *account.APIToken) bool { return t.Name == name }) {
		return errs.New(errs.AlreadyExists, "there is a key %s already: delete it first, or choose another id", clip(name))
	}
	token, record, err := c.cfg.Auth.NewToken(c.Who, c.Who, auth.TokenWish{Name: name, ExpiresIn: auth.TokenLife, Public: kind == keyPublic})
	if err != nil {
		return named(err, "name", "id")
	}
	txn.ShownOnce(ctx)
	if _, err := c.cfg.Operations.CreateAPIToken(ctx, c.By, record, c.Who.Permissions); err != nil {
		return err
	}
	if err := c.say("key %s (%s) is created and valid for a year; it is shown only now:", name, kind); err != nil {
		return err
	}
	return c.say("%s", token)
}

func deleteKey(ctx context.Context, c *call) error {
	var found []*account.APIToken
	for _, t := range c.keys() {
		if t.Name == c.arg(0) || t.ID == c.arg(0) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return errs.New(errs.NotFound, "there is no key %s: key list shows them", clip(c.arg(0)))
	case 1:
	default:
		return errs.New(errs.Conflict, "%d keys are called %s: name one by its record, which key list shows", len(found), clip(c.arg(0)))
	}
	t := found[0]
	if err := c.cfg.Operations.DeleteAPIToken(ctx, c.By, t.ID, 0); err != nil {
		return err
	}
	return c.say("key %s is deleted", t.Name)
}
