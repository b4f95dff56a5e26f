package main

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/apzuk3/agentd/internal/configfile"
)

// A setting of serve has one name in three forms: the flag --max-turns, the environment variable
// AGENTD_MAX_TURNS, and the key max_turns of the configuration file. The first of them that says
// something counts. Keys and addresses of providers are no flags, see providerSettings.

// configFlag is the flag of the commands that read the configuration file.
type configFlag struct {
	Config string `nokey:"" placeholder:"FILE" help:"${config_file}"`
}

// Tags of flags.
const (
	noVariable = "noenv" // it has neither an environment variable nor a key
	noKey      = "nokey" // it has no key
	liveTag    = "live"  // a reload changes it
)

// variable is the environment variable of a flag.
func variable(flag string) string {
	return "AGENTD_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// keyOf is the key of a flag.
func keyOf(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// isSetting reports whether a flag has a key.
func isSetting(f *kong.Flag) bool {
	return f.Name != "help" && !f.Tag.Has(noVariable) && !f.Tag.Has(noKey)
}

// resolver gives flags that are not on the command line the values of their variables, else those of the
// configuration file. An empty value counts as none.
func (p *process) resolver() kong.ResolverFunc {
	return func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		if value := p.env[variable(flag.Name)]; value != "" && !flag.Tag.Has(noVariable) {
			return value, nil
		}
		if p.file != nil && isSetting(flag) {
			if value := p.file.Values[keyOf(flag.Name)].Text; value != "" {
				return value, nil
			}
		}
		return nil, nil
	}
}

// parse reads the configuration file, if there is one, and the command line.
func (p *process) parse() (*kong.Context, error) {
	parser, err := p.parser()
	if err != nil {
		return nil, err
	}
	p.file = nil
	name, err := p.configFile(parser)
	if err != nil {
		return nil, err
	}
	if name != "" {
		if p.file, err = readConfig(name, p.getenv); err != nil {
			return nil, err
		}
	}
	return parser.Parse(p.args)
}

// configFile is the name of the configuration file that the command reads, "" for none.
func (p *process) configFile(parser *kong.Kong) (string, error) {
	ctx, err := kong.Trace(parser, p.args)
	if err != nil || ctx.Error != nil || ctx.Selected() == nil {
		return "", err // Parse says what is wrong
	}
	for _, flag := range ctx.Flags() {
		if flag.Name != "config" {
			continue
		}
		for _, at := range ctx.Path {
			if at.Flag == flag {
				name, _ := ctx.FlagValue(flag).(string)
				return name, nil
			}
		}
		return p.env[variable(flag.Name)], nil
	}
	return "", nil
}

// flagsOf returns the flags of a command line of serve that have keys, and a parser that fills them.
func flagsOf(c *serveCmd) (*kong.Kong, []*kong.Flag, error) {
	parser, err := kong.New(c, kong.PostBuild(longHelps), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		return nil, nil, err
	}
	var flags []*kong.Flag
	for _, f := range parser.Model.Flags {
		if isSetting(f) {
			flags = append(flags, f)
		}
	}
	return parser, flags, nil
}

// readConfig reads a configuration file, and refuses values that the flags of their keys would not take.
func readConfig(name string, getenv func(string) string) (*configfile.File, error) {
	parser, flags, err := flagsOf(&serveCmd{})
	if err != nil {
		return nil, err
	}
	var keys []configfile.Key
	for _, f := range flags {
		keys = append(keys, configfile.Key{Name: keyOf(f.Name), Kind: kindOf(f.Target.Type())})
	}
	for _, s := range providerSettings {
		keys = append(keys, configfile.Key{Name: s.key, Kind: configfile.Text})
	}
	file, err := configfile.Read(name, keys, getenv)
	if err != nil {
		return nil, err
	}
	checkValues(file, parser, flags)
	err = file.Err()
	return file, err
}

// checkValues tries each value on the flag of its key.
func checkValues(file *configfile.File, parser *kong.Kong, flags []*kong.Flag) {
	for _, f := range flags {
		v := file.Values[keyOf(f.Name)]
		if v.Text == "" {
			continue
		}
		if _, err := parser.Parse([]string{"--" + f.Name + "=" + v.Text}); err != nil {
			text := strings.ReplaceAll(err.Error(), "--"+f.Name, keyOf(f.Name))
			if v.Text != v.Written { // it may be a secret
				text = strings.ReplaceAll(text, v.Text, v.Written)
			}
			file.Report(keyOf(f.Name), text)
		}
	}
}

// kindOf is the kind of the key of a flag.
func kindOf(t reflect.Type) configfile.Kind {
	switch {
	case t == reflect.TypeFor[budgetFlag]():
		return configfile.Pairs
	case t == reflect.TypeFor[[]string]():
		return configfile.List
	case t.Kind() == reflect.String:
		return configfile.Text
	default:
		return configfile.Scalar
	}
}

// setting is a setting in force.
type setting struct {
	Key    string `json:"key"`
	Value  string `json:"value"` // "***" for a key of a provider
	Source string `json:"source"`

	live bool // a reload changes it
	raw  any  // by which it is compared
}

// defaultSource is where a value is from that nobody has set.
const defaultSource = "default"

// settings returns the settings of a command line, in the order of the flags.
func (p *process) settings(ctx *kong.Context) []setting {
	var out []setting
	given := map[*kong.Flag]bool{}
	for _, at := range ctx.Path {
		if at.Flag != nil && !at.Resolved {
			given[at.Flag] = true
		}
	}
	for _, f := range ctx.Selected().Flags {
		if !isSetting(f) {
			continue
		}
		s := setting{Key: keyOf(f.Name), live: f.Tag.Has(liveTag), raw: f.Target.Interface()}
		s.Value, s.Source = f.Default, defaultSource
		switch fromEnv := p.env[variable(f.Name)]; {
		case given[f]:
			s.Value, s.Source = shownValue(s.raw), "flag"
		case fromEnv != "":
			s.Value, s.Source = fromEnv, "environment variable "+variable(f.Name)
		case p.file != nil && p.file.Values[s.Key].Text != "":
			s.Value, s.Source = p.file.Values[s.Key].Written, p.file.At(s.Key)
		}
		if _, secret := s.raw.(secretFlag); secret && s.Value != "" {
			s.Value = hidden
		}
		out = append(out, s)
	}
	return out
}

// shownValue is the value of a flag as text.
func shownValue(v any) string {
	switch v := v.(type) {
	case []string:
		return strings.Join(v, ",")
	case slog.Level:
		return strings.ToLower(v.String())
	case budgetFlag:
		return v.String()
	default:
		return fmt.Sprint(v)
	}
}
