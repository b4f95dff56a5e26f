package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// parse returns the configuration that the last stage of a Dockerfile sets. It takes what ours uses: a stage from
// scratch, an instruction a line, lists as JSON, and the values of args.
func parse(dockerfile string, args map[string]string) (v1.Config, error) {
	var config v1.Config
	last := strings.LastIndex(dockerfile, "\nFROM ")
	if last < 0 || !strings.HasPrefix(dockerfile[last:], "\nFROM scratch\n") {
		return config, errors.New("the last stage is not from scratch")
	}
	for line := range strings.SplitSeq(dockerfile[last+len("\nFROM scratch\n"):], "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := instruct(&config, line, args); err != nil {
			return config, fmt.Errorf("%s: %w", line, err)
		}
	}
	return config, nil
}

func instruct(config *v1.Config, line string, args map[string]string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	expand := func(s string) string { return os.Expand(s, func(name string) string { return args[name] }) }
	switch word {
	case "ARG": // their values are args
		for name := range strings.FieldsSeq(rest) {
			if _, ok := args[name]; !ok {
				return fmt.Errorf("the argument %s is not known", name)
			}
		}
	case "COPY": // layers() has the files
	case "USER":
		config.User = rest
	case "VOLUME":
		config.Volumes = map[string]struct{}{rest: {}}
	case "EXPOSE":
		config.ExposedPorts = map[string]struct{}{rest + "/tcp": {}}
	case "ENTRYPOINT":
		config.Entrypoint, err = list(rest)
	case "CMD":
		config.Cmd, err = list(rest)
	case "ENV":
		config.Env = append(config.Env, strings.Fields(rest)...)
	case "LABEL":
		key, value, ok := strings.Cut(rest, "=")
		if !ok {
			return errors.New("want one KEY=VALUE")
		}
		if config.Labels == nil {
			config.Labels = map[string]string{}
		}
		config.Labels[key] = expand(strings.Trim(value, `"`))
	case "HEALTHCHECK":
		config.Healthcheck, err = health(rest)
	default:
		err = errors.New("the instruction is not known")
	}
	return err
}

func list(text string) (words []string, err error) {
	err = json.Unmarshal([]byte(text), &words)
	return words, err
}

func health(text string) (*v1.HealthConfig, error) {
	options, command, ok := strings.Cut(text, "CMD ")
	if !ok {
		return nil, errors.New("want CMD")
	}
	words, err := list(command)
	if err != nil {
		return nil, err
	}
	check := &v1.HealthConfig{Test: append([]string{"CMD"}, words...)}
	for option := range strings.FieldsSeq(options) {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "--interval":
			check.Interval, err = time.ParseDuration(value)
		case "--timeout":
			check.Timeout, err = time.ParseDuration(value)
		case "--start-period":
			check.StartPeriod, err = time.ParseDuration(value)
		case "--retries":
			check.Retries, err = strconv.Atoi(value)
		default:
			err = errors.New("the option is not known")
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", option, err)
		}
	}
	return check, nil
}
