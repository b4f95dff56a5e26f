package model_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/apzuk3/agentd/model"
)

// named is a provider with nothing but a name.
type named string

func (n named) Describe() model.Description { return model.Description{Name: string(n)} }
func (named) Open(string, string) (model.Model, error) {
	return model.Model{}, errors.ErrUnsupported
}
func panics(f func()) (text string) { defer func() { text, _ = recover().(string) }(); f(); return "" }
func makes(p model.Provider, err error) model.New {
	return func(func(string) string) (model.Provider, error) { return p, err }
}

// The registrations of this test stay for the whole process, so it is one test.
func TestRegister(t *testing.T) {
	for name, want := range map[string]string{"": "non-empty", "a/b": "without a slash"} {
		if got := panics(func() { model.Register(name, makes(named(name), nil)) }); !strings.Contains(got, want) {
			t.Errorf("%q: %q", name, got)
		}
	}
	if got := panics(func() { model.Register("none", nil) }); !strings.Contains(got, "nil") {
		t.Errorf("%q", got)
	}
	var asked string
	model.Register("zoo", func(getenv func(string) string) (model.Provider, error) {
		asked = getenv("ZOO")
		return named("zoo"), nil
	})
	model.Register("acme", makes(named("acme"), nil))
	if got := panics(func() { model.Register("zoo", makes(named("zoo"), nil)) }); !strings.Contains(got, "registered twice") {
		t.Errorf("%q", got)
	}
	// One that gives way does so whenever it is registered.
	model.RegisterDefault("zoo", makes(named("zoo"), nil))
	model.RegisterDefault("pond", makes(named("pond"), nil))
	got, err := model.Registered(func(name string) string { return "value of " + name })
	var names []string
	for _, p := range got {
		names = append(names, p.Describe().Name)
	}
	// Others are imported by tests of this package.
	strange := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n != "acme" && n != "pond" && n != "zoo" })
	if want := []string{"acme", "pond", "zoo"}; err != nil || !slices.Equal(strange, want) || !slices.IsSorted(names) || asked != "value of ZOO" {
		t.Errorf("got %v, %v, want %v among them; asked %q", names, err, want, asked)
	}
	if got := panics(func() { model.RegisterDefault("pond", makes(named("pond"), nil)) }); !strings.Contains(got, "registered twice") {
		t.Errorf("%q", got)
	}
	model.Register("liar", makes(named("other"), nil))
	if _, err := model.Registered(func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), `"liar" calls itself "other"`) {
		t.Error(err)
	}
}
