package gestalt

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// ConfigSchema is the JSON Schema of the configuration that the host passes on.
//
//go:embed agent_config.json
var ConfigSchema string

// Protocol is the version of the host's protocol that a Provider speaks.
const Protocol = 3

// The values of payloads.
const (
	payloadsNone    = "none"
	payloadsPrivate = "private"
)

// settings are what the host's configuration says.
type settings struct {
	agents, data, defaultAgent string
	// contents says that private events have their contents.
	contents bool
}

// parseSettings reads a configuration; data is where the store is without one.
func parseSettings(config *structpb.Struct, data string) (settings, error) {
	s := settings{data: data}
	payloads := payloadsNone
	keys := map[string]*string{
		"agents": &s.agents, "data": &s.data, "default_agent": &s.defaultAgent, "payloads": &payloads,
	}
	for _, name := range slices.Sorted(maps.Keys(config.GetFields())) {
		into, ok := keys[name]
		if !ok {
			return s, invalidf("config.%s is unknown: there are %s", name,
				strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		}
		text, ok := config.GetFields()[name].GetKind().(*structpb.Value_StringValue)
		if !ok || text.StringValue == "" {
			return s, invalidf("config.%s has to be a text that is not empty", name)
		}
		*into = text.StringValue
	}
	switch {
	case s.agents == "":
		return s, invalidf("config.agents is missing: it names the file with the agents")
	case s.data == "":
		return s, invalidf("config.data is missing, and neither HOME nor XDG_DATA_HOME says where data is kept")
	case payloads != payloadsNone && payloads != payloadsPrivate:
		return s, invalidf("config.payloads is %q: want %s or %s", payloads, payloadsNone, payloadsPrivate)
	}
	s.contents = payloads == payloadsPrivate
	return s, nil
}

// sameConfig reports whether two configurations say the same.
func sameConfig(a, b *structpb.Struct) bool {
	if len(a.GetFields()) == 0 && len(b.GetFields()) == 0 {
		return true
	}
	return proto.Equal(a, b)
}

// Environment is what the host says in the environment of the process.
type Environment struct {
	// Socket is the path of the socket to listen on.
	Socket string
	// Parent is the id of the host's process; 0 if it does not say.
	Parent int
	// Name is how the host calls this provider.
	Name string
	// Host is where AgentHost is: a path, or tcp://HOST:PORT or tls://HOST:PORT of a relay, with its Token. "" is
	// nowhere.
	Host, Token string
	// CA are certificates, PEM, besides those of the system, for tls://.
	CA string
}

// ReadEnvironment reads the environment by getenv, and the file of certificates that it may name by readFile.
func ReadEnvironment(
	getenv func(string) string, readFile func(string) ([]byte, error),
) (e Environment, err error) {
	const prefix = "GESTALT_"
	e = Environment{
		Socket: getenv(prefix + "PLUGIN_SOCKET"),
		Name:   getenv(prefix + "PLUGIN_NAME"),
		Host:   getenv(prefix + "AGENT_HOST_SOCKET"),
		Token:  getenv(prefix + "AGENT_HOST_SOCKET_TOKEN"),
		CA:     getenv(prefix + "HOST_SERVICE_TLS_CA_PEM"),
	}
	if e.Socket == "" {
		return e, fmt.Errorf("%sPLUGIN_SOCKET is not set: a Gestalt host sets it for providers that it starts", prefix)
	}
	if text := getenv(prefix + "PLUGIN_PARENT_PID"); text != "" {
		if e.Parent, err = strconv.Atoi(text); err != nil || e.Parent < 1 {
			return e, fmt.Errorf("%sPLUGIN_PARENT_PID is %q, want the id of a process", prefix, text)
		}
	}
	if file := getenv(prefix + "HOST_SERVICE_TLS_CA_FILE"); file != "" && e.CA == "" {
		pem, err := readFile(file)
		if err != nil {
			return e, fmt.Errorf("%sHOST_SERVICE_TLS_CA_FILE: %w", prefix, err)
		}
		e.CA = string(pem)
	}
	return e, nil
}
