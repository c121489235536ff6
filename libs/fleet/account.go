package fleet

import (
	"encoding/json"
	"time"
)

// Preferences are what a user wants their pages to look like: what is in them is the pages'
// own business. Their key is the user's User.ID, so that they stay with the user. The gateway
// writes them.
type Preferences struct {
	Rev
	// Value is an object as the user's page sent it.
	Value map[string]json.RawMessage `json:"value"`
	At    time.Time                  `json:"at"`
}

// MaxPreferences is the size of the largest preferences as they are kept, in bytes.
const MaxPreferences = 64 << 10

// PlayerLink says whose a player of the game is. Its key is the player's id, so that each is
// one user's at most. The gateway writes it, with User.MinecraftUUID of that user.
type PlayerLink struct {
	Rev
	// UserID is the user's User.ID.
	UserID string    `json:"userId"`
	At     time.Time `json:"at"`
}

// Avatar is the picture a user shows; the zero value is none. Its file stands in
// AvatarTemplate, at File.
type Avatar struct {
	// SHA256 is the file's, hex.
	SHA256 string `json:"sha256"`
	// Type is its media type, as its content says.
	Type string `json:"type"`
}

// MaxAvatar is the size of the largest picture, in bytes.
const MaxAvatar = 5 << 20

// AvatarTemplate has the pictures of all users.
var AvatarTemplate = TemplateRef{Group: "_users", Name: "avatars"}

// File is where a user's picture lies in AvatarTemplate.
func (a Avatar) File(userID string) string { return userID + "/" + a.SHA256 }
