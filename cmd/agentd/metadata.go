package main

import (
	"encoding/json"
	"errors"
)

// metadataFlag is a session's metadata on the command line; nil when the flag is not given.
type metadataFlag map[string]any

// UnmarshalText reads a flag's value.
func (m *metadataFlag) UnmarshalText(text []byte) error {
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	if object == nil {
		return errors.New(`want a JSON object, such as {"ticket":17}, or {} for none`)
	}
	*m = object
	return nil
}
