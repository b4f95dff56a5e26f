package scripted

import "github.com/apzuk3/agentd/model"

func init() { //nolint:gochecknoinits // it is how a provider is there by being imported
	model.RegisterDefault(name, func(getenv func(string) string) (model.Provider, error) {
		return New(Config{Dir: getenv("AGENTD_SCRIPTS")})
	})
}
