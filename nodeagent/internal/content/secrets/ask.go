package secrets

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/content"
)

// asked is an answer of a gateway: the values of variables, and the references for which it gave them.
type asked struct {
	Refs   map[string]string `json:"refs"`
	Values map[string]string `json:"values"`
}

func askedContext(id fleet.InstanceID) string { return "asked/" + string(id) }

// ask asks a gateway for the values of all stored and sealed references. While no gateway answers, the last
// answer for the same references is used.
func (s *resolution) ask(ctx context.Context, refs map[string]string) error {
	if s.r.cfg.Ask == nil {
		return nil
	}
	remote := map[string]string{}
	for variable, text := range refs {
		ref, err := content.ParseSecretRef(text)
		if err == nil && (ref.Kind == content.SecretStored || ref.Kind == content.SecretSealed) {
			remote[variable] = text
		}
	}
	if len(remote) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	values, err := s.r.cfg.Ask(within, s.id, remote)
	switch {
	case ctx.Err() != nil:
		return errs.Wrap("secrets.ask", ctx.Err())
	case err == nil:
		s.asked = asked{remote, values}
		return nil
	case !errs.Is(err, errs.Unavailable):
		return err
	}
	last := s.lastAsked()
	if !maps.Equal(last.Refs, remote) {
		return &errs.Error{Op: "secrets.ask", Kind: errs.Unavailable, Err: err, Message: "no gateway answers, and this node has no copy of the secrets"}
	}
	s.asked = last
	return nil
}

// lastAsked returns the stored answer; the zero value if there is none.
func (s *resolution) lastAsked() (last asked) {
	s.r.mu.Lock()
	f, _ := s.r.read(s.id) // an unreadable file counts as empty
	s.r.mu.Unlock()
	plain, err := s.r.box.About(askedContext(s.id)).Open(f.Asked)
	if err != nil || json.Unmarshal(plain, &last) != nil {
		return asked{}
	}
	return last
}

// saveAsked stores the answer, sealed, if it changed.
func (s *resolution) saveAsked() error {
	if len(s.asked.Refs) == 0 {
		return nil
	}
	if last := s.lastAsked(); maps.Equal(last.Refs, s.asked.Refs) && maps.Equal(last.Values, s.asked.Values) {
		return nil
	}
	plain, err := json.Marshal(s.asked)
	if err != nil {
		return errs.Wrap("secrets.saveAsked", err)
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	f, _ := s.r.read(s.id)
	f.Asked = s.r.box.About(askedContext(s.id)).Seal(plain)
	return s.r.write(s.id, f)
}
