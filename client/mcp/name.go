package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

const (
	// maxName is the most bytes of a name that a model sees.
	maxName = 64
	// hashDigits are the hex digits that tell apart names which would be the same.
	hashDigits = 6
)

// plainName is the name of a server's tool, or another one that a model sees: at most maxName of [A-Za-z0-9_], not
// beginning with a digit. A longer one is cut and gets digits of its hash.
func plainName(server, sep, tool string) string {
	name := cleanName(server, sep, tool)
	if len(name) > maxName {
		return hashedName(server, sep, tool, 0)
	}
	return name
}

func cleanName(server, sep, tool string) string {
	name := word(server) + sep + word(tool)
	if name[0] >= '0' && name[0] <= '9' {
		name = "_" + name
	}
	return name
}

// word replaces what a name may not hold.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		default:
			return '_'
		}
	}, s)
}

// hashedName is the name with digits of the hash of what it stands for; n counts those that were taken.
func hashedName(server, sep, tool string, n int) string {
	full := server + "\x00" + tool
	if n > 0 {
		full += "\x00" + strconv.Itoa(n)
	}
	sum := sha256.Sum256([]byte(full))
	name := cleanName(server, sep, tool)
	return name[:min(len(name), maxName-hashDigits)] + hex.EncodeToString(sum[:])[:hashDigits]
}

// names are the names in use, by whom: no two tools of a Build have the same. The builder's mutex guards it.
type names map[string]owner

type owner struct{ server, tool string }

// give returns the name of a tool, which keeps it until release.
func (n names) give(server, sep, tool string) string {
	me := owner{server, tool}
	free := func(name string) bool {
		has, taken := n[name]
		return !taken || has == me
	}
	name := plainName(server, sep, tool)
	for i := 0; !free(name); i++ {
		name = hashedName(server, sep, tool, i)
	}
	n[name] = me
	return name
}

// release frees the names of those tools of a server that it no longer has.
func (n names) release(server string, has map[string]bool) {
	for name, by := range n {
		if by.server == server && !has[by.tool] {
			delete(n, name)
		}
	}
}
