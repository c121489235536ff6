package store

import "github.com/orreryhq/orrery/libs/fleet"

// CatalogKey is what the catalog knows of a platform; written by the gateway.
func CatalogKey(platform string) Key[fleet.CatalogPlatform] {
	return Key[fleet.CatalogPlatform]{Root + "catalog/" + platform}
}

func Catalog() Prefix[fleet.CatalogPlatform] { return Prefix[fleet.CatalogPlatform]{Root + "catalog/"} }
