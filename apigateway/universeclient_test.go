package apigateway

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/orreryhq/orrery/libs/fleet"
)

// aConfiguration is a configuration as Universe clients send it: with numbers as text, null fields and
// unknown fields.
const aConfiguration = `{"name":"other","runtime":"process","command":"sleep 60","static":false,"ramMB":64,"cpu":10,"instanceGroups":["lobby"],"nodes":["node-1"],` +
	`"hostAddress":"127.0.0.1","availablePorts":{"min":25600,"max":25700},"minimumServiceCount":0,"environmentVariables":{"A":"b"},"templateInstallationConfig":{"allOf":` +
	`[{"name":"maps","group":"default","storage":"local","priority":1}],"allInGroups":[],"oneOf":[],"oneInGroups":[],"onTemplatePasteOverridePresentFiles":false},` +
	`"fileModifications":[],"properties":{"MOTD":"hi"},"additionalPorts":[]}`

// readsNode, readsInstance and readsConfiguration are the fields that clients read.
const (
	readsNode          = "id:string name:string address:string port:int local:bool resources.usedRamMB:int resources.usedCpu:int"
	readsInstance      = "id:string configurationName:string wrapperNodeId:string hostAddress:string allocatedPort:int state:string lastHeartbeat:int processPid:int? allocatedRamMB:int allocatedCpu:int runtime:string"
	readsConfiguration = "name:string runtime:string command:string static:bool ramMB:int cpu:int instanceGroups:list nodes:some hostAddress:string availablePorts.min:int availablePorts.max:int " +
		"minimumServiceCount:int environmentVariables:object templateInstallationConfig.allOf:list templateInstallationConfig.allInGroups:list templateInstallationConfig.oneOf:list " +
		"templateInstallationConfig.oneInGroups:list templateInstallationConfig.onTemplatePasteOverridePresentFiles:bool fileModifications:list properties:object additionalPorts:list"
)

// of prefixes fields with a path.
func of(place, fields string) string {
	return place + "." + strings.ReplaceAll(fields, " ", " "+place+".")
}

// universeEndpoints are the 36 endpoints of Universe's reference without its two WebSockets, in a
// possible order of calls, with the responses to rejected ones.
var universeEndpoints = []stockStep{
	{ask: "GET /api/ping", status: 200, reads: "status:string nodeId:string clusterName:string master:bool"},
	{ask: "GET /api/node", status: 200, reads: "id:string clusterName:string version:string master:bool address:string port:int apiPort:int uptimeMs:int system.availableProcessors:int " +
		"system.systemLoadAverage:number system.freeMemory:int system.totalMemory:int system.maxMemory:int"},
	{ask: "GET /api/node/config", status: 200, reads: "address:string port:int apiPort:int nodeId:string clusterName:string isMasterNode:bool masterAddress:string masterPort:int masterApiPort:int debug:bool " +
		"maxRamMB:int maxCpu:int updateSources:list nodeSpecificVariables:object bindAddress:string publicAddress:string"},
	{ask: "POST /api/node/reload", status: 200, reads: "message:string configurations:list templates:list problems:list"},
	{ask: "GET /api/cluster/nodes", status: 200, reads: of("0", readsNode)},
	{ask: "GET /api/cluster/nodes/node-1", status: 200, reads: readsNode + " instances:list"},
	{ask: "GET /api/cluster/nodes/nowhere", status: 404, reads: "error:string"},
	{ask: "POST /api/cluster/nodes/node-1/command", sent: `{"command":"node info"}`, status: 200, reads: "command:string output:some output.0:string"},

	{ask: "PUT /api/configurations/arena", sent: aConfiguration, status: 204},
	{ask: "PUT /api/configurations/bare", sent: `{}`, status: 204},
	{ask: "GET /api/configurations", status: 200, reads: of("0", readsConfiguration)},
	{ask: "GET /api/configurations/arena", status: 200, reads: readsConfiguration + " properties.MOTD:string environmentVariables.A:string"},
	{ask: "GET /api/configurations/nothing", status: 404, reads: "error:string"},
	{ask: "DELETE /api/configurations/bare", status: 204},

	{ask: "POST /api/instances", sent: `{"configurationName":"nothing"}`, status: 400, reads: "error:string"},
	{ask: "POST /api/instances", sent: `{"configurationName":"arena"}`, status: 201, reads: readsInstance, keep: "instance=id"},
	{ask: "GET /api/instances", status: 200, reads: of("0", readsInstance)},
	{ask: "GET /api/instances/{instance}", status: 200, reads: readsInstance},
	{ask: "GET /api/instances/nothing", status: 404, reads: "error:string"},
	{ask: "GET /api/instances/{instance}/logs?lines=10", status: 200, reads: "instanceId:string lines:some lines.0:string totalLines:int requestedLines:int"},
	{ask: "PUT /api/instances/{instance}/state", sent: `{"state":"ONLINE","lastHeartbeat":1893553447000,"players":3,"maxPlayers":20,"tps":19.5}`, status: 200, reads: readsInstance},
	{ask: "PUT /api/instances/{instance}/state", sent: `{"state":"HAPPY"}`, status: 400, reads: "error:string"},
	{ask: "POST /api/instances/{instance}/execute", sent: `{"command":"say hi"}`, status: 200, reads: "message:string"},
	{ask: "PATCH /api/instances/{instance}/lifecycle?target=restart", status: 200, reads: "message:string " + of("instance", readsInstance)},
	{ask: "PATCH /api/instances/{instance}/lifecycle?target=STOP", status: 200, reads: "message:string"},
	{ask: "PATCH /api/instances/{instance}/lifecycle?target=dance", status: 400, reads: "error:string"},
	{ask: "DELETE /api/instances/{instance}", status: 200, reads: "message:string"},

	{ask: "GET /api/templates", status: 200, reads: "0.group:string 0.name:string 0.path:string"},
	{ask: "GET /api/templates/default/maps", status: 200, reads: "group:string name:string path:string"},
	{ask: "GET /api/templates/default/maps/files", status: 200, reads: "group:string name:string files:some files.0:string"},
	{ask: "GET /api/templates/default/maps/files/a", status: 200},
	{ask: "PATCH /api/templates/default/maps/files/conf/a.yml", sent: "a: 1", status: 200, reads: "message:string path:string"},
	{ask: "POST /api/templates/default/maps/files/conf/b.bin", sent: "\x00\xff", status: 201, reads: "message:string path:string"},
	{ask: "POST /api/templates/default/maps/files/conf/b.bin", sent: "x", status: 409, reads: "error:string"},
	{ask: "DELETE /api/templates/default/maps/files/conf/b.bin", status: 200, reads: "message:string path:string"},
	{ask: "POST /api/templates/default/maps/sync", sent: `{"storage":"local"}`, status: 200, reads: "message:string group:string name:string storage:string"},
	{ask: "POST /api/templates/sync", sent: `{"pattern":"default/*"}`, status: 200, reads: "message:string"},

	{ask: "POST /api/commands/execute", sent: `{"command":"cluster status"}`, status: 200, reads: "command:string output:some output.0:string"},
	{ask: "GET /api/metrics", status: 200},
	{ask: "GET /openapi", status: 200},
	{ask: "GET /openapi/openapi.yaml", status: 200},
	{ask: "GET /docs", status: 200},
}

func TestEveryEndpointOfUniverseAnswersWithWhatItsClientsRead(t *testing.T) {
	t.Parallel()
	s := stocked(t)
	kept := map[string]string{}
	filledIn := func(text string) string { return strings.ReplaceAll(text, "{instance}", kept["instance"]) }
	for _, step := range universeEndpoints {
		t.Run(strings.NewReplacer("/", " ", "{", "", "}", "").Replace(step.ask), func(t *testing.T) {
			s := s.as(s.token)
			s.t = t
			s.stockStep(step, filledIn, kept)
			if strings.HasPrefix(step.keep, "instance=") { // as the scheduler and agent do
				s.status(fleet.InstanceID(kept["instance"]), "node-1", fleet.Status{State: fleet.Online, PID: 4711, HostAddress: "10.0.0.1", StartedAt: time.Now()})
			}
		})
	}
	zip := s.do("POST", "/api/templates/default/maps/export", nil).want(200)
	if zip.header.Get("Content-Type") != "application/zip" || !strings.Contains(zip.header.Get("Content-Disposition"), "default-maps.zip") {
		t.Errorf("exported as %v", zip.header)
	}
	s.do("POST", "/api/templates/default/copy/import", zip.raw).want(200).is("group", "default").is("name", "copy")
	for path, says := range map[string]string{"/api/console": "instance list", "/api/instances/" + kept["instance"] + "/live-log": ""} {
		conn, _, err := s.dial(path, http.Header{"Authorization": {"Bearer " + s.token}})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if says != "" {
			s.says(conn, says, "arena-1")
		}
		_ = conn.Close(websocket.StatusNormalClosure, "")
	}
}
