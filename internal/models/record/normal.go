package record

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/apzuk3/agentd/internal/jsondiff"
	"github.com/apzuk3/agentd/internal/rawjson"
	"github.com/apzuk3/agentd/model"
)

// hidden stands for what a line must not hold.
const hidden = "***"

// whole is for clean: inline data of any length stays.
const whole = -1

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
	if req.Cache != nil { // its key names the session
		cache := map[string]any{}
		if req.Cache.TTL != 0 {
			cache["ttl"] = req.Cache.TTL.String()
		}
		asked["cache"] = cache
	}
	data, err := rawjson.Marshal(asked)
	if err != nil {
		return nil, err
	}
	v, err := jsondiff.Decode(data)
	if err != nil {
		return nil, err
	}
	return rawjson.Marshal(clean(v, hide, MaxInline))
}

// clean returns v, which it may change, without secrets: known ones in any text
// and name, the user and the query of addresses of files. Of inline data keep bytes
// stay, see inline.
func clean(v any, hide *strings.Replacer, keep int) any {
	switch v := v.(type) {
	case string:
		return hide.Replace(v)
	case []any:
		for i := range v {
			v[i] = clean(v[i], hide, keep)
		}
	case map[string]any:
		_, typed := v["mimeType"].(string)
		for name, member := range v {
			if shown := hide.Replace(name); shown != name { // a model may name an argument so
				delete(v, name)
				name = shown
			}
			text, isText := member.(string)
			switch {
			case isText && name == "fileUri":
				v[name] = hide.Replace(address(text))
			case isText && name == "data" && typed:
				v[name] = inline(text, hide, keep)
			default:
				v[name] = clean(member, hide, keep)
			}
		}
	}
	return v
}

// hashed is what address makes of a query.
var hashed = regexp.MustCompile(`^sha256=[0-9a-f]{64}$`)

// address is a URI without what may be a secret in it: its user is left out, and
// its query, where signatures stand, becomes a hash, so that equal addresses
// stay equal. Its own result it leaves as it is: responses that are played hold such.
func address(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme == "data" {
		return "sha256:" + hash([]byte(uri))
	}
	u.User = nil
	if u.RawQuery != "" && !hashed.MatchString(u.RawQuery) {
		u.RawQuery = "sha256=" + hash([]byte(u.RawQuery))
	}
	return u.String()
}

// inline is base64 data without secrets. Data that holds one, or is longer than keep
// bytes, becomes its hash; with keep whole the secret alone is left out, as of a text.
// What is no base64, as a tool's result may hold under the same name, is a text.
func inline(text string, hide *strings.Replacer, keep int) string {
	if shown := hide.Replace(text); shown != text {
		return shown
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return text
	}
	shown := hide.Replace(string(data))
	secret := shown != string(data)
	switch {
	case keep == whole && secret:
		return base64.StdEncoding.EncodeToString([]byte(shown))
	case keep != whole && (secret || len(data) > keep):
		return fmt.Sprintf("sha256:%s (%d bytes)", hash(data), len(data))
	default:
		return text
	}
}

func hash(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// Normal decodes a recorded request for comparison with one of a line of that form:
// ids of tool calls, which are random, become numbers in the order of their
// appearance, and what other agents have said since the last one stands in the order
// of their names: those that run side by side come to their ends in any. All inline
// data becomes its hash, since a line has that alone of what held a secret.
func Normal(request json.RawMessage, version int) (any, error) {
	v, err := jsondiff.Decode(request)
	if err != nil {
		return nil, err
	}
	v = clean(v, strings.NewReplacer(), 0)
	ids := map[string]string{}
	top, _ := v.(map[string]any)
	if version < 2 {
		delete(top, "cache")
	}
	contents, _ := top["contents"].([]any)
	byAgent(contents)
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

// otherAgent is how a content begins that tells an agent of another one: its name
// follows.
var otherAgent = regexp.MustCompile(`^\[[^\]]+\] `)

// byAgent sorts contents that tell of other agents and follow each other. What tells
// of one agent keeps its order.
func byAgent(contents []any) {
	name := func(c any) string {
		content, _ := c.(map[string]any)
		parts, _ := content["parts"].([]any)
		if content["role"] == "model" || len(parts) < 2 {
			return ""
		}
		part, _ := parts[1].(map[string]any) // the first one says that it is about others
		text, _ := part["text"].(string)
		return otherAgent.FindString(text)
	}
	for from := 0; from < len(contents); from++ {
		to := from
		for to < len(contents) && name(contents[to]) != "" {
			to++
		}
		slices.SortStableFunc(contents[from:to], func(a, b any) int { return strings.Compare(name(a), name(b)) })
		from = max(from, to)
	}
}
