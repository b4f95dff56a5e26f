package managed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// input reads a JSON object field by field and keeps the first thing that is wrong with it. Each field is asked for by
// name; done refuses those that nobody has asked for.
type input struct {
	path   string // of this object, "" for the body
	fields map[string]json.RawMessage
	asked  map[string]bool
	first  *error // of the whole body
}

// bodyOf returns the object in the body of a request. A request without one has an empty object.
func bodyOf(r *http.Request) (*input, error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, badf("the body cannot be read to its end: send it again")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		data = []byte("{}")
	}
	if !utf8.Valid(data) {
		return nil, badf("the body is not UTF-8, want a JSON object")
	}
	fields, err := objectOf(data)
	if err != nil {
		return nil, badf("the body is %s, want a JSON object", err)
	}
	return &input{fields: fields, asked: map[string]bool{}, first: new(error)}, nil
}

// objectOf returns the fields of a JSON object. Its error says what the text is.
func objectOf(data []byte) (map[string]json.RawMessage, error) {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &fields)
	_, syntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case syntax:
		return nil, fmt.Errorf("no JSON (%w)", err)
	case err != nil || fields == nil:
		return nil, errors.New(kindOf(data))
	}
	return fields, nil
}

// kindOf says what a JSON value is.
func kindOf(data json.RawMessage) string {
	switch text := bytes.TrimSpace(data); {
	case len(text) == 0:
		return "missing"
	case text[0] == '{':
		return "an object"
	case text[0] == '[':
		return "a list"
	case text[0] == '"':
		return "a string"
	case text[0] == 't', text[0] == 'f':
		return "a boolean"
	case text[0] == 'n':
		return "null"
	}
	return "a number"
}

// at is the path of a field.
func (in *input) at(name string) string {
	if in.path == "" {
		return name
	}
	return in.path + "." + name
}

// failf keeps what is wrong with a field, unless something was wrong before.
func (in *input) failf(name, format string, args ...any) {
	if *in.first == nil {
		*in.first = badf("%s %s", in.at(name), fmt.Sprintf(format, args...))
	}
}

// err returns the first thing that is wrong with the body.
func (in *input) err() error { return *in.first }

// raw returns a field, nil if it is left out.
func (in *input) raw(name string) json.RawMessage {
	in.asked[name] = true
	return in.fields[name]
}

// has reports whether a field is there, be it null.
func (in *input) has(name string) bool {
	_, ok := in.fields[name]
	return ok
}

// isNull reports whether a field is there and null.
func (in *input) isNull(name string) bool {
	return in.has(name) && kindOf(in.fields[name]) == "null"
}

// absent reports whether a field is left out or null.
func (in *input) absent(name string) bool { return !in.has(name) || in.isNull(name) }

// text returns a string of at most a number of bytes, "" for one that is left out or null.
func (in *input) text(name string, most int) (s string) {
	raw := in.raw(name)
	if in.absent(name) {
		return ""
	}
	if json.Unmarshal(raw, &s) != nil {
		in.failf(name, "is %s, want a string", kindOf(raw))
	}
	if len(s) > most {
		in.failf(name, "has %d bytes, at most %d are allowed", len(s), most)
	}
	return s
}

// must is text for a field that may be neither left out nor empty.
func (in *input) must(name string, most int) string {
	s := in.text(name, most)
	if s == "" {
		in.failf(name, "is missing or empty, want a string")
	}
	return s
}

// one is must for a field with few values.
func (in *input) one(name string, of ...string) string {
	s := in.text(name, 256)
	if !slices.Contains(of, s) {
		in.failf(name, "is %.80q, want %s", s, alternatives(of))
	}
	return s
}

// alternatives lists what would be right.
func alternatives(of []string) string {
	quoted := make([]string, len(of))
	for i, s := range of {
		quoted[i] = `"` + s + `"`
	}
	return strings.Join(quoted, " or ")
}

// flag returns a boolean, false for one that is left out or null.
func (in *input) flag(name string) (b bool) {
	raw := in.raw(name)
	if !in.absent(name) && json.Unmarshal(raw, &b) != nil {
		in.failf(name, "is %s, want a boolean", kindOf(raw))
	}
	return b
}

// number returns a whole number of at least least, 0 for one that is left out or null.
func (in *input) number(name string, least int64) (n int64) {
	raw := in.raw(name)
	if in.absent(name) {
		return 0
	}
	if json.Unmarshal(raw, &n) != nil {
		in.failf(name, "is %s, want a whole number", kindOf(raw))
	} else if n < least {
		in.failf(name, "is %d, want at least %d", n, least)
	}
	return n
}

// object returns an object, nil for one that is left out or null.
func (in *input) object(name string) *input {
	raw := in.raw(name)
	if in.absent(name) {
		return nil
	}
	return in.below(name, raw)
}

// below reads a value as an object; of one that is none it returns an empty object.
func (in *input) below(name string, raw json.RawMessage) *input {
	fields, err := objectOf(raw)
	if err != nil {
		in.failf(name, "is %s, want an object", err)
	}
	return &input{path: in.at(name), fields: fields, asked: map[string]bool{}, first: in.first}
}

// list returns the values of a list, none for one that is left out or null.
func (in *input) list(name string, most int) (out []json.RawMessage) {
	raw := in.raw(name)
	if in.absent(name) {
		return nil
	}
	if json.Unmarshal(raw, &out) != nil {
		in.failf(name, "is %s, want a list", kindOf(raw))
	}
	if len(out) > most {
		in.failf(name, "has %d entries, at most %d are allowed", len(out), most)
		return nil
	}
	return out
}

// objects returns the objects of a list.
func (in *input) objects(name string, most int) (out []*input) {
	for i, raw := range in.list(name, most) {
		out = append(out, in.below(fmt.Sprintf("%s[%d]", name, i), raw))
	}
	return out
}

// The bounds of metadata, as the clients' documentation has them.
const (
	maxMetadata      = 16
	maxMetadataKey   = 64
	maxMetadataValue = 512
)

// metadata applies the field of that name to what there was: null removes a key. Of one that is left out it returns
// what there was; null removes all. The result is never nil.
func (in *input) metadata(before map[string]string) map[string]string {
	const name = "metadata"
	out := map[string]string{}
	maps.Copy(out, before)
	raw := in.raw(name)
	switch {
	case !in.has(name):
		return out
	case in.isNull(name):
		return map[string]string{}
	}
	var patch map[string]*string
	if json.Unmarshal(raw, &patch) != nil {
		in.failf(name, "is %s with values that are no strings, want an object of strings", kindOf(raw))
	}
	for k, v := range patch {
		if v == nil {
			delete(out, k)
			continue
		}
		if k == "" || len(k) > maxMetadataKey || len(*v) > maxMetadataValue {
			in.failf(name, "has the key %.80q with %d bytes: keys have 1 to %d bytes, values at most %d",
				k, len(*v), maxMetadataKey, maxMetadataValue)
		}
		out[k] = *v
	}
	if len(out) > maxMetadata {
		in.failf(name, "has %d keys, at most %d are allowed", len(out), maxMetadata)
	}
	return out
}

// unsupported refuses fields of the protocol that this server has no use for, unless they are empty.
func (in *input) unsupported(names ...string) {
	for _, name := range names {
		raw := bytes.TrimSpace(in.raw(name))
		switch string(raw) {
		case "", "null", "[]", "{}", `""`:
		default:
			in.failf(name, "is not supported by this server: leave it out")
		}
	}
}

// done refuses the fields that nobody has asked for, and returns the first thing that is wrong with the body.
func (in *input) done() error {
	var unknown []string
	for name := range in.fields {
		if !in.asked[name] {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		in.failf(fmt.Sprintf("%.80s", unknown[0]), "is not a field that this server knows: leave it out")
	}
	return in.err()
}
