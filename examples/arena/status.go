package arena

import (
	"crypto/md5"
	"fmt"

	"github.com/orreryhq/orrery/examples/arena/ping"
)

const (
	versionName = "Arena 1.0"
	// ownProtocol is the version sent to clients that do not name theirs: Minecraft 1.21.
	ownProtocol = 767
	// sampleSize limits the names in a status, as other servers do.
	sampleSize = 12
)

// status returns the status for a client. It echoes the client's protocol version, so that
// no client shows the server as outdated.
func (s *server) status(protocol int32) ping.Status {
	if protocol <= 0 {
		protocol = ownProtocol
	}
	return ping.Status{
		Version:     ping.Version{Name: versionName, Protocol: protocol},
		Players:     ping.Players{Max: s.set.maxPlayers, Online: s.players, Sample: samplePlayers(s.players)},
		Description: ping.Text(s.set.motd),
	}
}

// samplePlayers returns the first of n fake players, at most sampleSize.
func samplePlayers(n int) []ping.Player {
	players := make([]ping.Player, min(n, sampleSize))
	for i := range players {
		name := fmt.Sprintf("Player%d", i+1)
		players[i] = ping.Player{Name: name, ID: offlineID(name)}
	}
	return players
}

// offlineID returns the UUID that servers without accounts give a name: version 3 of RFC
// 4122 over "OfflinePlayer:<name>", without a namespace.
func offlineID(name string) string {
	id := md5.Sum([]byte("OfflinePlayer:" + name))
	id[6] = id[6]&0x0f | 0x30
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
