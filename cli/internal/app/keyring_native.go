//go:build darwin || windows

package app

// hasNativeKeyring says that the system has a keyring without a session bus.
const hasNativeKeyring = true
