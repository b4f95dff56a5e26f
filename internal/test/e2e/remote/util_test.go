package remote_test

import "google.golang.org/protobuf/types/known/durationpb"

func durationOf(seconds int64) *durationpb.Duration { return &durationpb.Duration{Seconds: seconds} }
