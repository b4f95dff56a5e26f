package echo

import "github.com/apzuk3/agentd/model"

func init() { //nolint:gochecknoinits // it is how a provider is there by being imported
	model.RegisterDefault("echo", func(func(string) string) (model.Provider, error) { return New(Config{}), nil })
}
