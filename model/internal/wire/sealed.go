package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/genai"

	"github.com/apzuk3/agentd/internal/seam"
	"github.com/apzuk3/agentd/model"
	"github.com/apzuk3/agentd/model/adapter"
)

// accountBytes is the length of the hash in an account's mark. It is short on
// purpose: a mark is stored with the conversation, and tells no more than 24 bits
// of a key, of which a provider's has 128 and more. Two accounts with the same mark
// cost a request that is refused, see WithSealed.
const accountBytes = 3

// Account returns the mark of the account that a key opens at an endpoint: the same
// for the same pair, in every process.
func Account(endpoint, key string) string {
	sum := sha256.Sum256([]byte("agentd: account of sealed data\x00" + endpoint + "\x00" + key))
	return hex.EncodeToString(sum[:accountBytes])
}

// MarkAccount notes in p, which holds data that the provider has sealed, for which
// account it has done so.
func MarkAccount(p *genai.Part, account string) {
	p.PartMetadata[seam.MetaAccount] = account
}

// Foreign reports whether the provider has sealed what p holds for another account
// than this one. Parts from before accounts were marked are taken for this one's.
func Foreign(p *genai.Part, account string) bool {
	of, _ := p.PartMetadata[seam.MetaAccount].(string)
	return of != "" && of != account
}

// WithSealed makes a call whose conversation may hold data that the provider has
// sealed for itself: encrypted or signed thinking, and results of its tools. A
// provider that cannot read its own data any more (its keys have changed, or it is
// of another account or model) refuses the call for it, this time and every later
// one. Refused so before any response, which costs nothing, the call is
// made once more without that data. owner is who is named in the parts.
func WithSealed(
	req *model.Request, owner string, emit func(model.Delta),
	call func(*model.Request, func(model.Delta)) (*model.Response, error),
) (*model.Response, error) {
	started := false
	resp, err := call(req, func(d model.Delta) {
		started = true
		emit(d)
	})
	if started || !refusesSealed(err) {
		return resp, err
	}
	without, found := unsealed(req, owner)
	if !found {
		return resp, err
	}
	return call(without, emit)
}

// refusesSealed reports whether an error says that a provider cannot read what it has
// sealed.
func refusesSealed(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Kind != model.KindInvalid || e.Usage != nil {
		return false
	}
	text := strings.ToLower(e.Message)
	return slices.ContainsFunc([]string{"encrypted", "signature"},
		func(word string) bool { return strings.Contains(text, word) })
}

// unsealed returns req without what the owner has sealed; found is false if there is
// nothing.
func unsealed(req *model.Request, owner string) (_ *model.Request, found bool) {
	out := *req
	out.Contents = slices.Clone(req.Contents)
	for i, c := range out.Contents {
		if c == nil || !slices.ContainsFunc(c.Parts, func(p *genai.Part) bool { return isSealed(p, owner) }) {
			continue
		}
		found = true
		open := *c
		open.Parts = slices.Clone(c.Parts)
		for j, p := range open.Parts {
			if isSealed(p, owner) {
				open.Parts[j] = unsealedPart(p)
			}
		}
		out.Contents[i] = &open
	}
	return &out, found
}

func isSealed(p *genai.Part, owner string) bool {
	return p != nil && adapter.Owned(p, owner) &&
		(p.Thought || len(p.ThoughtSignature) > 0 || strings.Contains(adapter.Opaque(p, owner), "encrypted"))
}

// unsealedPart is p as a part of nobody: adapters send its text and its call alone.
func unsealedPart(p *genai.Part) *genai.Part {
	out := *p
	out.ThoughtSignature = nil
	out.PartMetadata = maps.Clone(p.PartMetadata)
	delete(out.PartMetadata, seam.MetaProvider)
	delete(out.PartMetadata, seam.MetaOpaque)
	return &out
}
