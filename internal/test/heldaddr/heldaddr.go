// Package heldaddr has addresses for servers that a test starts again and again.
//
// It knows nothing of agentd, and imports the standard library alone.
package heldaddr
