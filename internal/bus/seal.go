package bus

import (
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"
)

// seal encrypts hints, so that a NATS server that serves others too neither reads what sessions say nor has servers
// believe what others publish. A hint that is sent again by others is what a late hint is.
type seal struct {
	aead   cipher.AEAD
	prefix string // of all subjects: servers with another secret do not meet
}

// newSeal derives a seal from the secret that servers share.
func newSeal(secret string) (*seal, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "agentd bus: messages", chacha20poly1305.KeySize)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	name, err := hkdf.Key(sha256.New, []byte(secret), nil, "agentd bus: subjects", 8)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	aead, err := chacha20poly1305.NewX(key)
	if err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	return &seal{aead: aead, prefix: "agentd." + hex.EncodeToString(name) + "."}, nil
}

// close returns the sealed form of a hint.
func (s *seal) close(subject string, data []byte) []byte {
	out := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(data)+chacha20poly1305.Overhead)
	_, _ = rand.Read(out) // it does not fail
	return s.aead.Seal(out, out, data, []byte(subject))
}

// open returns a hint from its sealed form.
func (s *seal) open(subject string, sealed []byte) ([]byte, error) {
	if len(sealed) < chacha20poly1305.NonceSizeX {
		return nil, fmt.Errorf("bus: %d bytes are no sealed hint", len(sealed))
	}
	nonce, rest := sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:]
	return s.aead.Open(nil, nonce, rest, []byte(subject))
}
