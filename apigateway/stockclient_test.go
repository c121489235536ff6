package apigateway

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orreryhq/orrery/apigateway/internal/auth"
	"github.com/orreryhq/orrery/libs/await"
	"github.com/orreryhq/orrery/libs/fleet"
	"github.com/orreryhq/orrery/libs/fleet/account"
	"github.com/orreryhq/orrery/libs/fleet/content"
	"github.com/orreryhq/orrery/libs/fleet/reports"
	"github.com/orreryhq/orrery/libs/store"
	"github.com/orreryhq/orrery/libs/store/keys"
	"github.com/orreryhq/orrery/libs/telemetry"
	"github.com/orreryhq/orrery/nodeagent/client"
)

// stock has the headers of PrexorCloud's command-line client, which are those of Go's client. Requests
// with a body also have its media type.
var stock = []string{"User-Agent", "Go-http-client/1.1", "Accept", ""}

func TestOnlyTheStockClientReadsTheInstancesOfAGroupAsAnArray(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.group("lobby", nil)
	s.group("arena", nil)
	s.start("lobby")
	s.start("lobby")
	s.start("arena")
	bare := s.do("GET", "/api/v1/services?group=lobby", nil, stock...).want(200)
	if list, ok := bare.body.([]any); !ok || len(list) != 2 {
		t.Errorf("no array: %s", bare.raw)
	}
	bare.is("0.id", "lobby-1").is("1.id", "lobby-2").is("1.group", "lobby").is("1.port", 0)
	if !slices.Contains(bare.header.Values("Vary"), "Accept, User-Agent") {
		t.Errorf("a cache may tell it to others: %v", bare.header)
	}
	s.do("GET", "/api/v1/services?group=nobody", nil, stock...).want(200).is("0", nil).naming("[]")
	for what, asked := range map[string][]string{
		"with an Accept":  {"/api/v1/services?group=lobby", "Accept", "*/*", "User-Agent", stock[1]},
		"another program": {"/api/v1/services?group=lobby", "User-Agent", "curl/8", "Accept", ""},
		"a page":          {"/api/v1/services?group=lobby&page=1"}, "a node": {"/api/v1/services?group=lobby&node=", stock[0], stock[1], stock[2], stock[3]},
		"the alias": {"/api/v1/instances?group=lobby"},
	} {
		header := asked[1:]
		if len(header) == 0 {
			header = stock
		}
		if r := s.do("GET", asked[0], nil, header...).want(200); len(r.data()) != 2 {
			t.Errorf("%s: no page: %s", what, r.raw)
		}
	}
	s.do("GET", "/api/v1/services", nil, stock...).want(200).is("total", 3)
	s.do("GET", "/api/v1/services?group=", nil, stock...).want(200).is("total", 3)
	s.node("node-1", fleet.Resources{MemoryMiB: 4096})
	s.as("").do("GET", "/api/v1/services?group=lobby", nil, stock...).want(401)
}

// stockStep is one request of the stock client.
type stockStep struct {
	// ask is the method, path and query; {name} is replaced by a kept field. sent is the body as the
	// client encodes it.
	ask, sent string
	// status is the expected status. 501 is for features that are not implemented yet.
	status int
	// reads are the fields that the client reads, with their types: see typed.
	reads string
	// keep saves fields for later requests: "name=path".
	keep string
	// hears is the last text expected from a stream, which the client opens without its token.
	hears string
}

// stockCommands are the commands of the stock client that call the API, in an order in which they
// succeed. Commands without calls (logout, completion, config, context, plugin new, module new) and
// setup are left out.
var stockCommands = []struct {
	command string
	steps   []stockStep
}{
	{"login", []stockStep{{ask: "POST /api/v1/auth/login", sent: `{"password":"` + adminPassword + `","username":"admin"}`, status: 200, reads: "token:string"}}},
	{"status", []stockStep{
		{ask: "GET /api/v1/overview", status: 200, reads: "nodeCount:int instanceCount:int playerCount:int groupCount:int"},
		{ask: "GET /api/v1/groups", status: 200, reads: "data:list"},
		{ask: "GET /api/v1/system/version", status: 200, reads: "version:string"},
	}},
	{"version", []stockStep{{ask: "GET /api/v1/system/version", status: 200, reads: "version:string"}}},

	{"group create", []stockStep{{
		ask: "POST /api/v1/groups", status: 201, reads: "name:string",
		sent: `{"jarFile":"server.jar","maxInstances":10,"memoryMb":64,"minInstances":1,"name":"lobby","platform":"paper","platformVersion":"1.21","portRangeEnd":30100,` +
			`"portRangeStart":30000,"routing":"LOWEST_PLAYERS","scalingMode":"DYNAMIC","templates":["maps"]}`,
	}}},
	{"group create without templates", []stockStep{{
		ask: "POST /api/v1/groups", status: 201, reads: "name:string",
		sent: `{"jarFile":"server.jar","maxInstances":10,"memoryMb":1024,"minInstances":1,"name":"spare","platform":"velocity","platformVersion":"","portRangeEnd":30100,` +
			`"portRangeStart":30000,"routing":"LOWEST_PLAYERS","scalingMode":"DYNAMIC","templates":[]}`,
	}}},
	{"group update", []stockStep{{
		ask: "PATCH /api/v1/groups/lobby", sent: `{"maxInstances":4,"memoryMb":64,"minInstances":2,"routing":"ROUND_ROBIN","scalingMode":"MANUAL"}`, status: 200, reads: "name:string",
	}}},
	{"group update of nothing", []stockStep{{ask: "PATCH /api/v1/groups/lobby", sent: `{}`, status: 200, reads: "name:string"}}},
	{"group scale", []stockStep{
		{ask: "GET /api/v1/groups/lobby", status: 200, reads: "maxInstances:int"},
		{ask: "PATCH /api/v1/groups/lobby", sent: `{"maxInstances":5,"minInstances":5}`, status: 200, reads: "minInstances:int"},
	}},
	{"group var", []stockStep{
		{ask: "PATCH /api/v1/groups/lobby", sent: `{"variableValues":{"motd":"a=b"}}`, status: 200, reads: "name:string"},
		{ask: "GET /api/v1/groups/lobby", status: 200, reads: "variableValues.motd:string"},
	}},
	{"group maintenance", []stockStep{
		{ask: "PATCH /api/v1/groups/spare", sent: `{"maintenance":true}`, status: 200, reads: "maintenance:bool"},
		{ask: "PATCH /api/v1/groups/spare", sent: `{"maintenance":false}`, status: 200, reads: "maintenance:bool"},
	}},
	{"group start", []stockStep{{ask: "POST /api/v1/groups/lobby/start", sent: `{"count":1,"variables":{}}`, status: 200, reads: "count:int"}}},
	{"group start --var", []stockStep{{ask: "POST /api/v1/groups/lobby/start", sent: `{"count":1,"variables":{"motd":"x"}}`, status: 200, reads: "count:int"}}},
	{"group list", []stockStep{{
		ask: "GET /api/v1/groups", status: 200, reads: "data.0.name:string data.0.platform:string data.0.platformVersion:string data.0.scalingMode:string data.0.minInstances:int " +
			"data.0.maxInstances:int data.0.maxPlayers:int data.0.runningInstances:int data.0.totalPlayers:int data.0.maintenance:bool data.0.static:bool",
	}}},
	{"group info", []stockStep{
		{ask: "GET /api/v1/groups/lobby", status: 200, reads: "platform:string platformVersion:string memoryMb:number routing:absent scalingMode:string minInstances:int maxInstances:int maxPlayers:int " +
			"templates:some templates.0:string updateStrategy:string parent:string maintenance:bool static:bool"},
		{ask: "GET /api/v1/services?group=lobby", status: 200, reads: "0.id:string 0.group:string 0.node:string 0.state:string 0.port:int 0.playerCount:int? 0.uptimeMs:int 0.startedAt:string 0.deploymentRevision:int"},
	}},

	{"instance list", []stockStep{
		{ask: "GET /api/v1/services", status: 200, reads: "data:some"},
		{
			ask: "GET /api/v1/services?group=lobby&node=node-1&state=RUNNING", status: 200,
			reads: "data.0.id:string data.0.group:string data.0.node:string data.0.state:string data.0.port:int data.0.playerCount:int? data.0.uptimeMs:int",
		},
	}},
	{"instance info", []stockStep{{
		ask: "GET /api/v1/services/lobby-1", status: 200, reads: "id:string group:string node:string state:string startedAt:string uptimeMs:int port:int playerCount:int? memoryMb:int",
	}}},
	{"instance start", []stockStep{{ask: "POST /api/v1/groups/lobby/start", status: 200, reads: "count:int"}}},
	{"instance exec", []stockStep{{ask: "POST /api/v1/services/lobby-1/command", sent: `{"command":"say hi there"}`, status: 200}}},
	{"instance console", []stockStep{
		{ask: "GET /api/v1/services/lobby-1", status: 200, reads: "node:string group:string state:string"},
		{ask: "POST /api/v1/events/ticket", status: 200, reads: "ticket:string", keep: "ticket=ticket"},
		{ask: "GET /api/v1/services/lobby-1/console?ticket={ticket}", hears: "data: "},
		{ask: "POST /api/v1/services/lobby-1/command", sent: `{"command":"list"}`, status: 200},
	}},
	{"logs instance", []stockStep{{ask: "GET /api/v1/services/lobby-1/console/history?limit=200", status: 200, reads: "lines:some lines.0.ts:string? lines.0.line:string"}}},
	{"logs all", []stockStep{{ask: "GET /api/v1/services", status: 200, reads: "data.0.id:string data.0.group:string data.0.node:string"}}},
	{"logs controller", []stockStep{
		{ask: "GET /api/v1/system/logs?level=INFO&limit=200", status: 200, reads: "size:int capacity:int level:string logger:string records:some records.0.seq:int records.0.ts:int records.0.level:string " +
			"records.0.logger:string records.0.thread:string records.0.message:string records.0.throwable:string? records.0.mdc:texts"},
		{ask: "POST /api/v1/system/logs/ticket", status: 200, reads: "ticket:string", keep: "ticket=ticket"},
		{ask: "GET /api/v1/system/logs/stream?tail=0&level=INFO&ticket={ticket}", hears: "event: log\n"},
	}},
	{"logs daemon", []stockStep{
		{ask: "GET /api/v1/nodes/node-1/logs?level=INFO&limit=200", status: 200, reads: "size:int capacity:int level:string logger:string records:some records.0.seq:int records.0.ts:int " +
			"records.0.level:string records.0.logger:string records.0.thread:string records.0.message:string"},
		{ask: "POST /api/v1/nodes/node-1/logs/ticket", status: 200, reads: "ticket:string", keep: "ticket=ticket"},
		{ask: "GET /api/v1/nodes/node-1/logs/stream?tail=0&level=INFO&ticket={ticket}", hears: "event: log\n"},
	}},
	{"logs --share", []stockStep{
		{ask: "POST /api/v1/system/logs/share", sent: `{"level":"INFO","limit":200}`, status: 201, reads: "url:string"},
		{ask: "POST /api/v1/nodes/node-1/logs/share", sent: `{"level":"INFO","limit":200,"expiry":"1h"}`, status: 201, reads: "url:string"},
	}},
	{"diagnostics bundle", []stockStep{
		{ask: "GET /api/v1/system/diagnostics", status: 200, reads: "controllerId:string generatedAtMs:int version:string readiness:object overview:object settings:object redactedConfig:object redisKeyspace:object leases:list"},
		{ask: "GET /api/v1/system/logs?level=DEBUG&limit=500", status: 200, reads: "records.0.ts:int records.0.level:string records.0.logger:string records.0.message:string"},
		{ask: "POST /api/v1/system/diagnostics/share", sent: `{}`, status: 201, reads: "url:string rawUrl:string"},
	}},

	{"node list", []stockStep{
		{ask: "GET /api/v1/nodes", status: 200, reads: "data.0.id:string data.0.nodeId:string data.0.status:string data.0.cpuUsage:number data.0.usedMemoryMb:number data.0.totalMemoryMb:number " +
			"data.0.instanceCount:int data.0.connectedSince:string"},
		{ask: "GET /api/v1/nodes?state=ONLINE", status: 200, reads: "data:some"},
	}},
	{"node info", []stockStep{{
		ask: "GET /api/v1/nodes/node-1", status: 200, reads: "nodeId:string status:string connectedSince:string cpuUsage:number usedMemoryMb:number totalMemoryMb:number freeDiskMb:number instanceCount:int " +
			"instances:some instances.0.id:string instances.0.group:string instances.0.state:string instances.0.port:int instances.0.playerCount:int?",
	}}},
	{"node drain", []stockStep{{ask: "POST /api/v1/nodes/node-1/drain", status: 200, reads: "status:string shutdown:bool drainTimeoutSeconds:int kickMessage:string"}}},
	{"node undrain", []stockStep{{ask: "POST /api/v1/nodes/node-1/undrain", status: 200, reads: "status:string"}}},

	{"template list", []stockStep{{ask: "GET /api/v1/templates", status: 200, reads: "data.0.name:string data.0.hash:string data.0.sizeBytes:int data.0.description:string"}}},
	{"template versions", []stockStep{{ask: "GET /api/v1/templates/maps/versions", status: 200, reads: "0.hash:string 0.sizeBytes:int 0.createdAt:string 1.hash:string"}}},
	{"template rollback", []stockStep{{ask: "POST /api/v1/templates/maps/rollback", status: 200}}},
	{"template var", []stockStep{
		{ask: "GET /api/v1/templates/maps/variables", status: 200},
		{
			ask: "PUT /api/v1/templates/maps/variables", status: 200,
			sent: `[{"defaultValue":"hi","description":"","key":"motd","required":false,"scope":"INSTANCE","type":"STRING","validation":{"max":20},"visibility":"OPERATOR"}]`,
		},
		{ask: "GET /api/v1/templates/maps/variables", status: 200, reads: "0.key:string 0.type:string 0.scope:string 0.required:bool 0.defaultValue:string 0.description:string"},
		{ask: "PUT /api/v1/templates/maps/variables", sent: `[]`, status: 200},
	}},

	{"deploy", []stockStep{
		{ask: "GET /api/v1/groups/lobby", status: 200, reads: "platform:string platformVersion:string templates:some scalingMode:string"},
		{ask: "POST /api/v1/groups/lobby/deploy", sent: `{"batchSize":1,"strategy":"rolling"}`, status: 202, reads: "revision:int strategy:string state:string"},
		{ask: "POST /api/v1/groups/lobby/deploy", status: 409},
		{ask: "GET /api/v1/groups/lobby/deployments/1", status: 200, reads: "revision:int strategy:string state:string updatedInstances:int totalInstances:int createdAt:string rollout.batchSize:int"},
	}},
	{"deploy list", []stockStep{{ask: "GET /api/v1/groups/lobby/deployments?page=1&pageSize=50", status: 200, reads: "items.0.revision:int data:list"}}},
	{"deploy show", []stockStep{{ask: "GET /api/v1/groups/lobby/deployments/1", status: 200}}},
	{"deploy pause, resume, rollback", []stockStep{
		{ask: "POST /api/v1/groups/lobby/deployments/1/pause", status: 200, reads: "status:string"},
		{ask: "POST /api/v1/groups/lobby/deployments/1/resume", status: 200, reads: "status:string"},
		{ask: "POST /api/v1/groups/lobby/deployments/1/rollback", status: 409},
	}},
	{"deploy save", []stockStep{{
		ask: "POST /api/v1/services/lobby-1/save-to-template", sent: `{"pathPrefix":"","template":"maps"}`, status: 200, reads: "template:string hash:string filesWritten:int skipped:some skipped.0:string",
	}}},

	{"token create", []stockStep{{
		ask: "POST /api/v1/admin/tokens", sent: `{"nodeId":"node-2","ttl":"1h"}`, status: 201, reads: "tokenId:string token:string nodeId:string expiresAt:string", keep: "token=tokenId",
	}}},
	{"token list", []stockStep{{ask: "GET /api/v1/admin/tokens", status: 200, reads: "data.0.tokenId:string data.0.nodeId:string data.0.expiresAt:string data.0.status:string"}}},
	{"token revoke", []stockStep{{ask: "DELETE /api/v1/admin/tokens/{token}", status: 204}}},

	{"role create", []stockStep{{ask: "POST /api/v1/roles", sent: `{"name":"READER","permissions":["groups.view"]}`, status: 201, reads: "name:string"}}},
	{"role create without permissions", []stockStep{{ask: "POST /api/v1/roles", sent: `{"name":"STUB","permissions":[]}`, status: 201, reads: "name:string"}}},
	{"role list", []stockStep{{ask: "GET /api/v1/roles", status: 200, reads: "data.0.name:string data.0.builtIn:bool data.0.permissions:some data.0.permissions.0:string"}}},
	{"role show", []stockStep{{ask: "GET /api/v1/roles/READER", status: 200, reads: "name:string builtIn:bool permissions:some"}}},
	{"role update", []stockStep{{ask: "PATCH /api/v1/roles/READER", sent: `{"permissions":["groups.view","nodes.view"]}`, status: 200, reads: "permissions.1:string"}}},
	{"user create", []stockStep{{ask: "POST /api/v1/users", sent: `{"password":"` + adminPassword + `","role":"READER","username":"rita"}`, status: 201, reads: "username:string role:string"}}},
	{"user list", []stockStep{{ask: "GET /api/v1/users", status: 200, reads: "data.0.id:string data.0.username:string data.0.role:string data.0.createdAt:string"}}},
	{"user delete", []stockStep{{ask: "DELETE /api/v1/users/rita", status: 204}}},
	{"role delete", []stockStep{{ask: "DELETE /api/v1/roles/READER", status: 204}}},

	{"crash list", []stockStep{
		{ask: "GET /api/v1/crashes", status: 200, reads: "data.0.id:string", keep: "crash=data.0.id"},
		{ask: "GET /api/v1/crashes?from=2020-01-31T12%3A00%3A00Z&group=lobby&node=node-1", status: 200, reads: "data.0.id:string data.0.instanceId:string data.0.group:string data.0.node:string data.0.nodeId:string " +
			"data.0.exitCode:int data.0.classification:string data.0.crashedAt:string data.0.uptimeMs:int"},
	}},
	{"crash info", []stockStep{{
		ask: "GET /api/v1/crashes/{crash}", status: 200, reads: "id:string instanceId:string group:string node:string exitCode:int classification:string crashedAt:string uptimeMs:int logTail:some logTail.0:string",
	}}},
	{"crash info --share", []stockStep{
		{ask: "POST /api/v1/crashes/{crash}/share", sent: `{}`, status: 201, reads: "url:string rawUrl:string expiresAt:string isPrivate:bool burnAfterRead:bool deleteToken:string deleteUrl:string"},
		{ask: "POST /api/v1/crashes/{crash}/share", sent: `{"expiry":"30d","isPrivate":true,"burnAfterRead":false}`, status: 201, reads: "url:string isPrivate:bool", keep: "share=shareId"},
	}},
	{"share list", []stockStep{
		{ask: "GET /api/v1/shares?pageSize=50", status: 200, reads: "total:int page:int pageSize:int data:some"},
		{ask: "GET /api/v1/shares?activeOnly=true&kind=CRASH&pageSize=50", status: 200, reads: "data.0.id:string data.0.kind:string data.0.resourceId:string data.0.url:string data.0.rawUrl:string data.0.expiresAt:string " +
			"data.0.burnAfterRead:bool data.0.isPrivate:bool data.0.sizeBytes:int data.0.sharedByUser:string data.0.sharedAt:string data.0.revokedAt:string? data.0.revocable:bool"},
	}},
	{"share view", []stockStep{{ask: "GET /api/v1/shares/{share}", status: 200, reads: "id:string kind:string resourceId:string url:string sharedAt:string revocable:bool"}}},
	{"share revoke", []stockStep{{ask: "POST /api/v1/shares/{share}/revoke", status: 200, reads: "id:string kind:string revokedAt:string"}}},

	{"backup create", []stockStep{{ask: "POST /api/v1/backups", status: 501}}},
	{"backup list", []stockStep{{ask: "GET /api/v1/backups", status: 200, reads: "items:list directory:string retentionCount:int"}}},
	{"backup verify", []stockStep{{ask: "POST /api/v1/backups/b1/verify", status: 501}}},
	{"backup prune", []stockStep{{ask: "POST /api/v1/backups/prune?keep=3", status: 501}}},
	{"backup delete", []stockStep{{ask: "DELETE /api/v1/backups/b1", status: 501}}},
	{"restore", []stockStep{{ask: "POST /api/v1/restore", sent: `{"dryRun":true,"id":"b1"}`, status: 501}}},

	{"catalog add", []stockStep{
		{
			ask: "POST /api/v1/catalog/PAPER/versions", status: 201, reads: "platform:string version:string",
			sent: `{"category":"SERVER","configFormat":"","downloadUrl":"https://x.example/1.20.jar","sha256":"` + someHash + `","version":"1.20"}`,
		},
		{ask: "PUT /api/v1/catalog/PAPER/versions/1.20/recommended", status: 200},
	}},
	{"catalog list", []stockStep{{
		ask: "GET /api/v1/catalog", status: 200, reads: "data.0.platform:string data.0.category:string data.0.version:string data.0.recommended:bool data.0.sha256:string data.0.downloadUrl:string",
	}}},
	{"catalog update", []stockStep{
		{
			ask: "PATCH /api/v1/catalog/PAPER/versions/1.20", status: 200, reads: "platform:string",
			sent: `{"downloadUrl":"https://x.example/1.20-2.jar","sha256":"` + someHash + `","version":"1.20"}`,
		},
		{ask: "PATCH /api/v1/catalog/PAPER/versions/1.20", sent: `{"downloadUrl":"","sha256":"` + someHash + `","version":"1.20"}`, status: 200, reads: "downloadUrl:string"},
	}},
	{"catalog update --new-version", []stockStep{
		{ask: "PATCH /api/v1/catalog/PAPER/versions/1.20", sent: `{"downloadUrl":"","sha256":"","version":"1.20.1"}`, status: 200, reads: "version:string"},
		{ask: "PATCH /api/v1/catalog/PAPER/versions/1.20.1", sent: `{"downloadUrl":"","sha256":"","version":"1.20"}`, status: 200},
	}},
	{"catalog remove", []stockStep{{ask: "DELETE /api/v1/catalog/PAPER/versions/1.20", status: 204}}},

	{"cluster status", []stockStep{{ask: "GET /api/v1/cluster", status: 200, reads: "clusterId:string memberCount:int activeConfigVersion:int createdAt:string"}}},
	{"cluster members", []stockStep{{
		ask: "GET /api/v1/cluster/members", status: 200, reads: "members.0.nodeId:string members.0.raftAddr:string? members.0.restAddr:string members.0.gRPCAddr:string? members.0.label:string members.0.joinedAt:string",
	}}},
	{"module list", []stockStep{{ask: "GET /api/v1/modules", status: 200, reads: "data:list"}}},
	{"module search", []stockStep{{ask: "GET /api/v1/modules/platform/registry", status: 200, reads: "registries:list modules:list"}}},
	{"module install", []stockStep{{ask: "POST /api/v1/modules/platform/registry/install", sent: `{"moduleId":"m","version":"1"}`, status: 501}}},
	{"module delete", []stockStep{{ask: "DELETE /api/v1/modules/platform/m", status: 501}}},

	{"instance stop", []stockStep{{ask: "POST /api/v1/services/lobby-1/stop", status: 200}}},
	{"instance stop --force", []stockStep{{ask: "POST /api/v1/services/lobby-1/force-stop", status: 200}}},
	{"group delete", []stockStep{{ask: "DELETE /api/v1/groups/spare", status: 204}}},
}

// someHash is an arbitrary hash.
var someHash = strings.Repeat("ab", 32)

// clusterManaged are commands that need cluster.manage, which ADMIN lacks by default.
var clusterManaged = []string{
	"GET /api/v1/cluster/join-tokens", "POST /api/v1/cluster/join-tokens", "DELETE /api/v1/cluster/join-tokens/j", "DELETE /api/v1/cluster/members/m?reason=x",
	"POST /api/v1/cluster/leave", "POST /api/v1/cluster/seed/rotate",
}

// typed describes how a field of the response differs from a type, or returns "". Types are string,
// int, number, bool, list and object; some is a list that is not empty, texts an object of strings or
// missing, absent a missing field. A type with a question mark may be null or absent.
func (r *reply) typed(path, kind string) string {
	v := r.field(path)
	kind, optional := strings.CutSuffix(kind, "?")
	if v == nil && optional {
		return ""
	}
	ok := false
	switch kind {
	case "string":
		_, ok = v.(string)
	case "number":
		_, ok = v.(float64)
	case "int":
		n, isNumber := v.(float64)
		ok = isNumber && n == math.Trunc(n)
	case "bool":
		_, ok = v.(bool)
	case "list":
		_, ok = v.([]any)
	case "some":
		list, _ := v.([]any)
		ok = len(list) > 0
	case "object":
		_, ok = v.(map[string]any)
	case "texts":
		all, _ := v.(map[string]any)
		ok = v == nil || all != nil
		for _, one := range all {
			_, isText := one.(string)
			ok = ok && isText
		}
	case "absent":
		ok = v == nil
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("%s is %v, and the client reads %s", path, v, kind)
}

// stocked returns a gateway with one of everything that the stock client shows.
func stocked(t *testing.T) *site {
	t.Helper()
	s := newShelf(newSite(t, logging(100)))
	n := s.node("node-1", fleet.Resources{MemoryMiB: 4096, CPU: 400, DiskMiB: 10_000})
	n.mu.Lock()
	n.lines = []string{"Done (1.2s)!"}
	n.records = []telemetry.Record{{Seq: 41, TS: 1, Level: "WARN", Logger: "nodeagent", Thread: "nodeagent/node-1", Message: "test 1"}}
	n.saved = packed(t, "server.properties", "port=%PORT%\n", client.ExportReportName, `{"files":1,"skipped":[{"path":"world","reason":"a world"}]}`)
	n.mu.Unlock()
	s.commit(store.Create(keys.Report("node-1"), reports.Report{Node: "node-1", CPU: 0.5, MemoryMiB: 1024, DiskFreeMiB: 5000, DiskMiB: 10_000, At: time.Now()}))
	s.do("POST", "/api/v1/templates", `{"name":"maps"}`).want(201)
	for n := range 2 {
		s.do("PUT", "/api/v1/templates/maps/files/content?path=a", fmt.Sprintf(`{"content":"%d"}`, n)).want(200)
	}
	s.defining("lobby", content.Variable{Key: "motd", Type: content.VariableString, Scope: content.ScopeInstance})
	s.crash(1, time.Hour, nil)
	s.gateway.cfg.Log.Info("test of the stock client", "answer", 42)
	return s.site
}

func TestEveryCommandOfTheStockClientGetsWhatItReads(t *testing.T) {
	t.Parallel()
	s := stocked(t)
	kept := map[string]string{}
	filledIn := func(text string) string {
		for name, v := range kept {
			text = strings.ReplaceAll(text, "{"+name+"}", v)
		}
		return text
	}
	for _, c := range stockCommands {
		t.Run(c.command, func(t *testing.T) {
			s := s.as(s.token)
			s.t = t
			for _, step := range c.steps {
				if s.stockStep(step, filledIn, kept); t.Failed() {
					return
				}
			}
			if c.command == "group start" { // as the scheduler and agent do
				i, _ := s.view.Snapshot().Find("lobby-1")
				s.status(i.Intent.ID, "node-1", fleet.Status{State: fleet.Online, StartedAt: time.Now().Add(-time.Minute)})
			}
		})
	}
	for _, ask := range clusterManaged {
		method, path, _ := strings.Cut(ask, " ")
		s.do(method, path, nil, stock...).want(403)
	}
	s.commit(store.Create(keys.Role("OWNER"), account.Role{Name: "OWNER", Permissions: []account.Permission{auth.ClusterManage}}))
	owner := s.user("olga", "OWNER")
	for _, ask := range clusterManaged {
		method, path, _ := strings.Cut(ask, " ")
		if r := owner.do(method, path, nil, stock...); method == "GET" {
			r.want(200).is("tokens", []string{})
		} else {
			r.want(501)
		}
	}
}

// stockStep sends a request and checks the response as the stock client does.
func (s *site) stockStep(step stockStep, filledIn func(string) string, kept map[string]string) {
	s.t.Helper()
	method, path, _ := strings.Cut(filledIn(step.ask), " ")
	if step.hears != "" {
		said := s.as("").stream(path)
		s.gateway.cfg.Log.Info("test while it is followed")
		await.That(s.t, "the stream says "+step.hears, func() string {
			return await.Unless(strings.Contains(said.String(), step.hears), "%s", said)
		})
		return
	}
	header, body := stock, any(nil)
	if step.sent != "" {
		header, body = append(slices.Clone(stock), "Content-Type", "application/json"), step.sent
	}
	r := s.do(method, path, body, header...).want(step.status)
	if step.status == http.StatusNotImplemented {
		r.is("error.code", "NOT_IMPLEMENTED")
	}
	for _, field := range strings.Fields(step.reads) {
		at, kind, _ := strings.Cut(field, ":")
		if fault := r.typed(at, kind); fault != "" {
			s.t.Errorf("%s: %s\n%.1000s", step.ask, fault, r.raw)
		}
	}
	if name, at, ok := strings.Cut(step.keep, "="); ok {
		kept[name] = fmt.Sprint(r.field(at))
	}
}
