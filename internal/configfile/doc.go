// Package configfile reads the configuration file of agentd: a YAML mapping of keys to values.
//
// It checks the form of the file, that its keys are known, and that the values have the kinds of their
// keys; it puts values of the environment in the place of ${env:NAME}. What is wrong has a line and a
// column. Aliases and anchors are refused; sizes are bounded.
//
// It knows neither which keys there are, nor what their values mean, nor flags. It imports
// internal/yamlfile alone.
package configfile
