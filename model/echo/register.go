package echo

import "github.com/apzuk3/agentd/model"

func init() { //nolint:gochecknoinits // it is how a provider is there by being imported
	model.RegisterDefault("echo", func(func(string) string) (model.Provider, error) { return New(Config{}), nil })
}

// Describe claims the one name.
func (*Provider) Describe() model.Description { return model.Description{Names: []string{"echo"}} }
