package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/configfile"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/isolation"
	"github.com/orreryhq/orrery/libs/fleet/record"
	"github.com/orreryhq/orrery/libs/fleet/sleep"
)

// Plan contains everything needed to place, build and start an instance of a group at one
// revision. It is immutable and its key is its digest. Compose builds it; the service that creates
// the instance writes it.
type Plan struct {
	record.Rev
	Group         GroupName   `json:"group"`
	GroupRevision int64       `json:"groupRevision"`
	Runtime       RuntimeName `json:"runtime"`
	// Command is the shell command with placeholders.
	Command string `json:"command"`

	// Layers are copied in this order; later ones win.
	Layers []PlanLayer `json:"layers,omitempty"`
	// Artifact is the platform's software from the catalog, or nil. Without Override, files
	// already in a static directory are kept.
	Artifact          *content.Artifact `json:"artifact,omitempty"`
	Override          bool              `json:"override,omitempty"`
	FileModifications []string          `json:"fileModifications,omitempty"`
	// Merge are globs of files that are merged across layers. Patches are applied in order.
	Merge     []string                 `json:"merge,omitempty"`
	Patches   []configfile.ConfigPatch `json:"patches,omitempty"`
	Variables map[string]string        `json:"variables,omitempty"`
	// Secrets maps the secret variables to references, which only the node resolves. The value is
	// "" for a variable that must be given at start.
	Secrets map[string]string `json:"secrets,omitempty"`
	// Hidden is the visibility of the variables that are not visible to all, as defined by the
	// group and the layers' versions. It does not contain the secrets.
	Hidden map[string]content.Visibility `json:"hidden,omitempty"`
	// Missing are required variables without a value. The start fails unless it provides them.
	Missing        []string          `json:"missing,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	InstanceGroups []string          `json:"instanceGroups,omitempty"`
	HostAddress    string            `json:"hostAddress,omitempty"`
	MaxPlayers     int               `json:"maxPlayers,omitempty"`

	Resources       Resources           `json:"resources"`
	CPULimit        int                 `json:"cpuLimit,omitempty"`
	Limits          isolation.Limits    `json:"limits,omitzero"`
	Confine         isolation.Confine   `json:"confine,omitzero"`
	Container       isolation.Container `json:"container,omitzero"`
	RCON            RCON                `json:"rcon,omitzero"`
	Ports           PortRange           `json:"ports"`
	AdditionalPorts []NamedPort         `json:"additionalPorts,omitempty"`
	Where           Where               `json:"where"`
	Static          bool                `json:"static,omitempty"`
	ProtectedPaths  []string            `json:"protectedPaths,omitempty"`

	// Priority and StartupWeight order the starts on a node that starts few instances at once.
	Priority      int `json:"priority,omitempty"`
	StartupWeight int `json:"startupWeight,omitempty"`

	Stop                  Stop       `json:"stop"`
	Readiness             Check      `json:"readiness"`
	Ping                  CheckType  `json:"ping,omitempty"` // the ping used by a readiness of CheckAny
	Liveness              Liveness   `json:"liveness,omitzero"`
	StartupTimeoutSeconds int        `json:"startupTimeoutSeconds,omitempty"`
	MaxLifetimeSeconds    int        `json:"maxLifetimeSeconds,omitempty"`
	OnCrash               OnCrash    `json:"onCrash"`
	OnNodeLoss            OnNodeLoss `json:"onNodeLoss"`
	// Sleep says how a sleeping instance wakes. Its AfterEmptySeconds is always 0, because only the
	// enforcer uses that.
	Sleep sleep.Rules `json:"sleep,omitzero"`
}

// PlanLayer is one template version of a plan. An empty Digest means that the template did not
// exist when the plan was composed. The start then fails with TemplateMissing.
type PlanLayer struct {
	content.TemplateRef
	// Digest is the version's digest, "" if Storage has no such template.
	Digest   string `json:"digest"`
	Storage  string `json:"storage,omitempty"`
	Priority int    `json:"priority,omitempty"`
	// Auto marks an automatic layer. It is below all selected layers.
	Auto bool `json:"auto,omitempty"`
}

// StoredPlan is a plan as stored, with the time it was last referenced. Unreferenced plans are
// garbage-collected an hour later.
type StoredPlan struct {
	record.Rev
	Plan      Plan      `json:"plan"`
	TouchedAt time.Time `json:"touchedAt"`
}

// Digest identifies the plan: the SHA-256 of its canonical JSON, in hex.
func (p Plan) Digest() string {
	p.Rev = record.Rev{}
	b, err := json.Marshal(p)
	if err != nil { // only possible for types JSON cannot encode; Plan has none
		panic(fmt.Sprintf("fleet: encoding a plan: %v", err))
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// CompositionDigest is the digest of the plan without the group's revision, the visibilities and the order
// of starts.
// Plans that build the same instance have the same one.
func (p Plan) CompositionDigest() string {
	p.GroupRevision, p.Hidden, p.Priority, p.StartupWeight = 0, nil, 0, 0
	return p.Digest()
}

// customImage is the environment variable that overrides the group's image, as in the older API.
const customImage = "CUSTOM_IMAGE"

// Asked returns the network check for a starting server. For CheckAny this is the platform's ping.
func (p Plan) Asked() Check {
	if p.Readiness.Type == CheckAny {
		return Check{Type: p.Ping, Port: p.Readiness.Port}
	}
	return p.Readiness
}

// ImageReference returns the image of the plan's container, with placeholders.
func (p Plan) ImageReference() string { return cmp.Or(p.Env[customImage], p.Container.Image) }
