//go:build !linux

package main

import (
	"context"
	"errors"

	"github.com/apzuk3/agentd/session/store"
)

const canWearOut = false

func wearOut(context.Context, store.Store, store.Batch) error { return errors.ErrUnsupported }
