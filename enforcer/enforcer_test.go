package enforcer

import (
	"log/slog"
	"testing"
	"time"

	"github.com/orreryhq/orrery/libs/errs"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/view"
)

func TestNewDemandsWhatIsRequired(t *testing.T) {
	client, err := store.Dial([]string{"http://127.0.0.1:1"}, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	full := func() Config {
		return Config{Store: client, View: view.New(client, nil, Kinds()...), Log: slog.New(slog.DiscardHandler), Replica: "a"}
	}
	if _, err := New(full()); err != nil {
		t.Errorf("with all that is required: %v", err)
	}
	for what, remove := range map[string]func(*Config){
		"store":   func(c *Config) { c.Store = nil },
		"view":    func(c *Config) { c.View = nil },
		"log":     func(c *Config) { c.Log = nil },
		"replica": func(c *Config) { c.Replica = "" },
	} {
		cfg := full()
		remove(&cfg)
		if _, err := New(cfg); !errs.Is(err, errs.Invalid) {
			t.Errorf("without %s: %v, want Invalid", what, err)
		}
	}
}

func TestLimits(t *testing.T) {
	if l := (Config{}).limits(); l.KeepFor != time.Hour || l.KeepRecords != 20 {
		t.Errorf("by default: %v and %d, want an hour and 20", l.KeepFor, l.KeepRecords)
	}
	if l := (Config{KeepFor: time.Minute, KeepRecords: -1}).limits(); l.KeepFor != time.Minute || l.KeepRecords != 0 {
		t.Errorf("as told: %v and %d, want a minute and none", l.KeepFor, l.KeepRecords)
	}
}
