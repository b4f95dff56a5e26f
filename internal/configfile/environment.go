package configfile

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// variable matches ${env:NAME}, and what may be meant to be one.
var variable = regexp.MustCompile(`\$\{(?:env:([A-Za-z_][A-Za-z0-9_]*)\}|[^}]{0,64}\}?)`)

// Environment is what ${env:NAME} in the texts of one file stands for.
type Environment struct {
	// Getenv reads a variable.
	Getenv func(name string) string
	// Most bounds all values together, in bytes; default MaxBytes.
	Most int

	expanded int // bytes so far
}

// Expand returns a text with values of the environment in the place of ${env:NAME}. problem receives what is wrong with
// it, without a value.
func (e *Environment) Expand(text string, problem func(message string)) string {
	return variable.ReplaceAllStringFunc(text, func(found string) string {
		name, ok := strings.CutPrefix(found, "${env:")
		name, closed := strings.CutSuffix(name, "}")
		if !ok || !closed || variable.FindStringSubmatch(found)[1] == "" {
			problem(fmt.Sprintf("%q is not understood: ${env:NAME} is the value of an environment variable", found))
			return ""
		}
		value := e.Getenv(name)
		if value == "" {
			problem(fmt.Sprintf("the environment variable %s is not set", name))
		}
		if e.expanded += len(value); e.expanded > cmp.Or(e.Most, MaxBytes) {
			problem(fmt.Sprintf("the environment variable %s is too long: all of them take at most %d bytes",
				name, cmp.Or(e.Most, MaxBytes)))
			return ""
		}
		return value
	})
}

// maxKeyFile bounds a file that holds a key, in bytes.
const maxKeyFile = 64 << 10

// ReadKey reads a file that holds a key alone. The error does not hold it.
func ReadKey(name string) (string, error) {
	in, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = in.Close() }()
	text, err := io.ReadAll(io.LimitReader(in, maxKeyFile+1))
	key := strings.TrimSpace(string(text))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxKeyFile:
		return "", fmt.Errorf("%s has more than %d bytes: want a file that holds a key alone", name, maxKeyFile)
	case key == "" || strings.ContainsAny(key, "\r\n"):
		return "", fmt.Errorf("%s: want a file that holds a key, on one line", name)
	}
	return key, nil
}
