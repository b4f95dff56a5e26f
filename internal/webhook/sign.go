package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Key is a secret that a hook and its receiver share, as bytes.
type Key = Secret

// keyPrefix stands before a key in base64.
const keyPrefix = "whsec_"

// How long a key is, in bytes.
const leastKey, mostKey = 24, 64

var errKey = errors.New("want whsec_ and 24 to 64 random bytes in base64, as agentd webhooks secret prints them")

// ParseKey reads a key: whsec_ and 24 to 64 bytes in base64. The error does not hold it.
func ParseKey(text string) (Key, error) {
	encoded, is := strings.CutPrefix(strings.TrimSpace(text), keyPrefix)
	if !is {
		return "", errKey
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(raw) < leastKey || len(raw) > mostKey {
		return "", errKey
	}
	return Key(raw), nil
}

// NewSecret returns the text of a new key.
func NewSecret() string {
	raw := make([]byte, 32)
	_, _ = rand.Read(raw) // it does not fail
	return keyPrefix + base64.StdEncoding.EncodeToString(raw)
}

// sign sets the headers of the Standard Webhooks specification: the id of the message, the time of the request, and
// for each key "v1," and the HMAC-SHA256 of "id.timestamp.body" in base64.
func sign(h http.Header, keys []Key, id string, at time.Time, body []byte) {
	seconds := strconv.FormatInt(at.Unix(), 10)
	var all []string
	for _, key := range keys {
		mac := hmac.New(sha256.New, []byte(key))
		mac.Write([]byte(id + "." + seconds + "."))
		mac.Write(body)
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", seconds)
	h.Set("Webhook-Signature", strings.Join(all, " "))
}
