package record

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/model"
)

// hidden stands for what a line must not hold.
const hidden = "***"

// minSecret is the length, in bytes, below which a secret is not looked for: it
// would be found in any text.
const minSecret = 6

// Request is a request as a line has it, but for the secrets of its provider.
func Request(req *model.Request) (json.RawMessage, error) { return request(req, strings.NewReplacer()) }

// request is a request as a line has it.
func request(req *model.Request, hide *strings.Replacer) (json.RawMessage, error) {
	cfg := *req.Config
	cfg.HTTPOptions = nil // addresses and headers are no part of what is asked
	asked := map[string]any{"contents": req.Contents, "config": &cfg}
	if len(req.Deferred) > 0 {
		asked["deferred"] = req.Deferred
		if !req.ToolSearch { // as all recorded ones did once
			asked["toolSearch"] = false
		}
	}
	data, err := model.MarshalJSON(asked)
	if err != nil {
		return nil, err
	}
	v, err := jsondiff.Decode(data)
	if err != nil {
		return nil, err
	}
	return model.MarshalJSON(clean(v, hide, true))
}

// clean returns v, which it may change, without secrets: known ones in any text,
// the user and the query of addresses of files. Long inline data becomes its
// hash, if short is set.
func clean(v any, hide *strings.Replacer, short bool) any {
	switch v := v.(type) {
	case string:
		return hide.Replace(v)
	case []any:
		for i := range v {
			v[i] = clean(v[i], hide, short)
		}
	case map[string]any:
		_, typed := v["mimeType"].(string)
		for name, member := range v {
			text, isText := member.(string)
			switch {
			case isText && name == "fileUri":
				v[name] = hide.Replace(address(text))
			case isText && name == "data" && typed:
				v[name] = inline(text, short)
			default:
				v[name] = clean(member, hide, short)
			}
		}
	}
	return v
}

// address is a URI without what may be a secret in it: its user is left out, and
// its query, where signatures stand, becomes a hash, so that equal addresses
// stay equal.
func address(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "data" {
		return "sha256:" + hash([]byte(uri))
	}
	u.User = nil
	if u.RawQuery != "" {
		u.RawQuery = "sha256=" + hash([]byte(u.RawQuery))
	}
	return u.String()
}

// inline is base64 data, or the hash of what it stands for.
func inline(text string, short bool) string {
	if !short || base64.StdEncoding.DecodedLen(len(text)) <= MaxInline {
		return text
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return text // not what genai writes
	}
	return fmt.Sprintf("sha256:%s (%d bytes)", hash(data), len(data))
}

func hash(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// Normal decodes a recorded request for comparison with another one: ids of tool
// calls, which are random, become numbers in the order of their appearance.
func Normal(request json.RawMessage) (any, error) {
	v, err := jsondiff.Decode(request)
	if err != nil {
		return nil, err
	}
	ids := map[string]string{}
	top, _ := v.(map[string]any)
	contents, _ := top["contents"].([]any)
	for _, c := range contents {
		content, _ := c.(map[string]any)
		parts, _ := content["parts"].([]any)
		for _, p := range parts {
			part, _ := p.(map[string]any)
			for _, name := range []string{"functionCall", "functionResponse"} {
				call, _ := part[name].(map[string]any)
				id, ok := call["id"].(string)
				if !ok {
					continue
				}
				if ids[id] == "" {
					ids[id] = fmt.Sprintf("call %d", len(ids)+1)
				}
				call["id"] = ids[id]
			}
		}
	}
	return v, nil
}
