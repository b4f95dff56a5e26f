package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/apzuk3/agentd/session/record"
	"github.com/apzuk3/agentd/session/store"
)

const (
	// magic begins a sealed value, the number of its data key follows. Nothing that sessions write begins so: it is
	// JSON.
	magic = "\x00agentd\x01"
	// headBytes are magic and the number.
	headBytes = len(magic) + 4
	// textMagic begins a sealed value where only text may stand.
	textMagic = "agentd-sealed-1:"
	// jsonMagic begins one where only JSON may stand. Sessions write JSON without white space before it.
	jsonMagic = ` "` + textMagic
	// keyBytes is the size of a key.
	keyBytes = 32
)

// dataKey seals values. It is immutable.
type dataKey struct {
	id   uint32
	aead cipher.AEAD
}

func newDataKey(id uint32, key []byte) (*dataKey, error) {
	aead, err := newAEAD(key)
	return &dataKey{id, aead}, err
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	if len(key) != keyBytes {
		return nil, fmt.Errorf("a key has %d bytes, want %d", len(key), keyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns a sealed value for a place.
func (k *dataKey) seal(place, value []byte) []byte {
	out := make([]byte, headBytes, headBytes+k.aead.Overhead()+len(value))
	binary.BigEndian.PutUint32(out[copy(out, magic):], k.id)
	return k.aead.Seal(out, nil, value, place) //nolint:gosec // the nonce is random: newAEAD
}

// sealText is seal where only text may stand, sealJSON where only JSON may.
func (k *dataKey) sealText(place []byte, value string) string {
	return textMagic + base64.StdEncoding.EncodeToString(k.seal(place, []byte(value)))
}

func (k *dataKey) sealJSON(place []byte, value json.RawMessage) json.RawMessage {
	sealed := k.seal(place, value)
	out := make([]byte, 0, len(jsonMagic)+base64.StdEncoding.EncodedLen(len(sealed))+1)
	return append(base64.StdEncoding.AppendEncode(append(out, jsonMagic...), sealed), '"')
}

// keyOf returns the number of the key that a value is sealed with; sealed is false for a clear one.
func keyOf(value []byte) (id uint32, sealed bool) {
	if len(value) < headBytes || string(value[:len(magic)]) != magic {
		return 0, false
	}
	return binary.BigEndian.Uint32(value[len(magic):]), true
}

// fromJSON returns the sealed value that stands as JSON, and fromText the one that stands as text; sealed is false for
// a clear one. A text that cannot be read is a sealed value that does not open.
func fromJSON(value json.RawMessage) (data []byte, sealed bool) {
	text, sealed := bytes.CutPrefix(value, []byte(jsonMagic))
	if !sealed {
		return nil, false
	}
	return decode(string(bytes.TrimSuffix(text, []byte{'"'}))), true
}

func fromText(value string) (data []byte, sealed bool) {
	text, sealed := strings.CutPrefix(value, textMagic)
	if !sealed {
		return nil, false
	}
	return decode(text), true
}

func decode(text string) []byte {
	data, err := base64.StdEncoding.DecodeString(text)
	if _, sealed := keyOf(data); err != nil || !sealed {
		return binary.BigEndian.AppendUint32([]byte(magic), math.MaxUint32) // of no key
	}
	return data
}

// place is where a value stands. Each part has its length before it, so that no two places are the same bytes.
func place(kind string, parts ...string) []byte {
	n := 16 + len(kind)
	for _, part := range parts {
		n += binary.MaxVarintLen64 + len(part)
	}
	out := append(make([]byte, 0, n+16), kind...)
	for _, part := range parts {
		out = append(binary.AppendUvarint(out, uint64(len(part))), part...)
	}
	return out
}

func recordPlace(session string, r *record.Record) []byte {
	out := place("record\x00", session, r.TurnID, string(r.Kind))
	out = binary.BigEndian.AppendUint64(out, uint64(r.Seq))
	return binary.BigEndian.AppendUint64(out, uint64(r.Time.UnixMicro()))
}

func rowPlace(r *store.Row) []byte { return place("row\x00", r.SessionID, string(r.Kind), r.ID) }

func sharedPlace(scope, key string) []byte { return place("shared\x00", scope, key) }

func metadataPlace(session string) []byte { return place("metadata\x00", session) }

func keyPlace(k *store.Key) []byte { return place("key\x00", k.Scope, k.Name, k.SessionID, k.ID) }
