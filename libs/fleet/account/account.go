// Package account holds users, roles, logins, tokens, the audit log and shared texts.
package account

import (
	"encoding/json"
	"time"

	"github.com/orreryhq/orrery/libs/fleet/record"
)

// Preferences are a user's settings for their pages. Only the pages know what is in them. The
// record's key is User.ID, so it stays with the user. The gateway writes it.
type Preferences struct {
	record.Rev
	// Value is a JSON object as the page sent it.
	Value map[string]json.RawMessage `json:"value"`
	At    time.Time                  `json:"at"`
}

// MaxPreferences bounds the size of a stored Preferences value, in bytes.
const MaxPreferences = 64 << 10

// PlayerLink maps a player of the game to a user. Its key is the player's ID, so a player belongs
// to at most one user. The gateway writes it together with User.MinecraftUUID.
type PlayerLink struct {
	record.Rev
	// UserID is the user's User.ID.
	UserID string    `json:"userId"`
	At     time.Time `json:"at"`
}

// Avatar is a user's profile picture. The zero value means no picture. Its file is in
// AvatarTemplate under the path File returns.
type Avatar struct {
	// SHA256 is the hash of the file, in hex.
	SHA256 string `json:"sha256"`
	// Type is the media type, detected from the content.
	Type string `json:"type"`
}

// MaxAvatar bounds the size of a picture, in bytes.
const MaxAvatar = 5 << 20

// File returns the path of a user's picture in AvatarTemplate.
func (a Avatar) File(userID string) string { return userID + "/" + a.SHA256 }
