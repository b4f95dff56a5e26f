package wire

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What Scan reads, encoding/json reads too, and as the same.
func FuzzScan(f *testing.F) {
	for _, text := range []string{
		`{"text":"plain","thought":true,"n":12}`, ` [ 1 , -2.5e+3, null, true,false ] `, `"\u003ca\n\t\"\\\/\b\f\r\ud83d\ude00"`, `"\ud83d"`,
		"\"\xff\"", `"\x"`, `"\u12`, `01`, `-`, `1.`, `1e`, `.5`, `{"a":1,}`, `[1,]`, `{"a" 1}`, `{,}`, `[[[[{"a":[]}]]]]`, `tru`, `nul`, `"`, "\"\x01\"",
		`{"K":1,"key":2}`, `123456789`, `1234567890`, `true`, `1 2`, ``, strings.Repeat("[", 200) + strings.Repeat("]", 200),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, read := range map[string]func(s *Scan) any{
			"text":    func(s *Scan) any { return s.String("") },
			"boolean": func(s *Scan) any { return s.Bool() },
			"count":   func(s *Scan) any { return s.Int() },
			"tokens":  func(s *Scan) any { return s.Tokens() },
			"raw":     func(s *Scan) any { return json.RawMessage(bytes.Clone(s.Raw())) },
			"known":   func(s *Scan) any { return s.Is("plain") },
			"object":  func(s *Scan) any { return scanMembers(s) },
			"list":    func(s *Scan) any { return scanItems(s) },
		} {
			s := NewScan(data)
			got := read(&s)
			if !s.Done() {
				continue
			}
			want := reflect.New(reflect.TypeOf(got))
			if name == "known" {
				want = reflect.New(reflect.TypeFor[string]())
			}
			if err := json.Unmarshal(data, want.Interface()); err != nil {
				t.Errorf("%s of %q is %v, and not JSON: %v", name, data, got, err)
			}
			if name == "known" {
				want = reflect.ValueOf(new(want.Elem().String() == "plain"))
			}
			if !reflect.DeepEqual(want.Elem().Interface(), got) {
				t.Errorf("%s of %q is %v, want %v", name, data, got, want.Elem())
			}
		}
	})
}

// scanMembers reads an object.
func scanMembers(s *Scan) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for s.Enter('{'); s.Next('}'); {
		key := string(s.Key())
		out[key] = bytes.Clone(s.Raw())
	}
	return out
}

// scanItems reads a list of texts.
func scanItems(s *Scan) []string {
	out := []string{}
	for s.Enter('['); s.Next(']'); {
		out = append(out, s.String(""))
	}
	return out
}

// TestScan: what is common is read, and what encoding/json may read otherwise is not.
func TestScan(t *testing.T) {
	for text, want := range map[string]bool{
		`{"text":"a"}`: true,
		` {"text" : "\u003cb\n" , "other":{"a":[1,-2.5E+3,null,true,false,"\ud800"]}} `: true,
		`{"other":"` + "\xff" + `"}`: true,
		`{"text":"` + "\xff" + `"}`:  false,
		`{"text":"\ud83d\ude00"}`:    false,
		`{"text":null}`:              false,
		`{"Text":"a"}`:               false,
		`{"te\u0078t":"a"}`:          false,
		`{"text":"a"} x`:             false,
		`{"text":"a"`:                false,
		`{"text":"a",}`:              false,
		`{"other":01}`:               false,
		`{"other":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: false,
	} {
		s := NewScan([]byte(text))
		for s.Enter('{'); s.Next('}'); {
			if key := s.Key(); string(key) == "text" {
				s.String("")
			} else {
				s.Unknown(key, "text")
			}
		}
		if got := s.Done(); got != want {
			t.Errorf("%s is read: %v, want %v", text, got, want)
		}
	}
}
