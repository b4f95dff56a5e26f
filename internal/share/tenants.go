package share

import (
	"context"
	"time"
)

// Kind is what a tenant has a bounded number of at the same time.
type Kind string

// The kinds of places. They are kept with the shares.
const (
	Turns   Kind = "turns"
	Streams Kind = "streams"
)

// Desk keeps what servers over one store have of the bounds of tenants. Its methods may be called from any goroutine.
// An error leaves open whether anything was set.
type Desk interface {
	// Place sets the share of this server. All shares of a tenant never exceed its bound, but for what is Held.
	Place(ctx context.Context, ask PlaceAsk) (PlaceShare, error)
	// WantedPlaces returns the places that other servers have found none of.
	WantedPlaces(ctx context.Context) ([]Wanted, error)
	// Requests leases requests that this server may admit within LeaseTime of its call. All leases within any T
	// seconds are at most PerSecond * (T + 2) requests.
	Requests(ctx context.Context, ask RequestsAsk) (RequestsLease, error)
	// Forget drops what says nothing any more of requests.
	Forget(ctx context.Context) error
}

// PlaceAsk is what a server asks for of the places of a tenant.
type PlaceAsk struct {
	Kind   Kind
	Tenant string
	// Bound is that of all servers.
	Bound int
	// Held are in use. They become the share in any case.
	Held int
	// Need is granted whole or not at all; 0 if there is none. Spare comes with it as far as it is a quarter of the
	// rest.
	Need, Spare int
}

// PlaceShare is the answer to a PlaceAsk.
type PlaceShare struct {
	Share int
	// Waits: the need was not granted. The others read it from WantedPlaces until the share is set again.
	Waits bool
}

// Wanted are places of a tenant that a server has found none of.
type Wanted struct {
	Kind   Kind
	Tenant string
}

// LeaseTime is for how long requests are leased.
const LeaseTime = time.Second

// RequestsAsk is what a server asks for of the requests of a tenant.
type RequestsAsk struct {
	Tenant string
	// PerSecond is the bound of all servers; twice as many may come at once.
	PerSecond int
	// Want is at least 1. As many are granted, at most half of what there is, and one if there is one.
	Want int
}

// RequestsLease is the answer to a RequestsAsk.
type RequestsLease struct {
	Granted int
	// Wait is, if none is granted, when there will be one unless another server gets it.
	Wait time.Duration
}

const (
	// tendEvery is how often Keep has places given back.
	tendEvery = time.Second
	// idleTends is after how many of those times without a Take spare places are given back.
	idleTends = 5
	// thriftyTends is for how many of them a server takes no spare after another one has found no place.
	thriftyTends = 5
	// flagTends is for how many of them a server that has found no place says so.
	flagTends = 3
	// forgetTends is after how many of them Desk.Forget is called.
	forgetTends = 600
	// askAgain is how long a refusal of the desk, or its failure, counts before it is asked again.
	askAgain = 250 * time.Millisecond
	// askPatience bounds one call of the desk.
	askPatience = 2 * time.Second
	// givenBack is how long a Take waits, when none of this server has waited before, for spare places of others.
	givenBack = 1500 * time.Millisecond
	// sparePlaces is how many places a server takes beyond what it needs.
	sparePlaces = 8
)

// Keep gives back what this server does not need of places, until ctx ends. While there is none, it asks nobody. log
// takes its failures, after which it goes on.
func Keep(ctx context.Context, desk Desk, log func(error), places ...*Places) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := tendAll(ctx, desk, places)
		if err == nil && n%forgetTends == 0 {
			err = desk.Forget(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log(err)
		}
	}
}

func tendAll(ctx context.Context, desk Desk, places []*Places) error {
	var used bool
	for _, p := range places {
		used = p.inUse() || used
	}
	if !used {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	wanted, err := desk.WantedPlaces(ctx)
	for _, p := range places {
		if err == nil {
			err = p.Tend(ctx, wanted)
		}
	}
	return err
}
