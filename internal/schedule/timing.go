package schedule

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // zones of machines without a database of them, such as containers

	"github.com/robfig/cron/v3"

	agentdv1 "github.com/apzuk3/agentd/gen/proto/go/agentd/v1"
	"github.com/apzuk3/agentd/session/fault"
)

// timing is when a schedule runs, as it is kept: one of the fields is set, of cron with its zone; and what, a goal or a
// turn.
type timing struct {
	Cron  string        `json:"cron,omitempty"`
	Zone  string        `json:"zone,omitempty"`
	Every time.Duration `json:"every,omitempty"`
	At    time.Time     `json:"at,omitzero"`
	Goal  bool          `json:"goal,omitempty"`
}

// times yields the times of a timing.
type times interface {
	// next is the first time behind another one; zero if there is none.
	next(after time.Time) time.Time
}

// timingOf reads the timing of a request. The error is for the client.
func timingOf(req *agentdv1.CreateScheduleRequest) (t timing, err error) {
	switch {
	case req.GetCron() != nil:
		t = timing{Cron: strings.TrimSpace(req.GetCron().GetExpression()), Zone: req.GetCron().GetTimeZone()}
	case req.GetEvery() != nil:
		t.Every = req.GetEvery().AsDuration()
	case req.GetAt() != nil:
		if err := req.GetAt().CheckValid(); err != nil {
			return t, fault.Errorf(fault.Invalid, "at: %v", err).Breaking("at", fault.RuleFormat)
		}
		t.At = req.GetAt().AsTime().Truncate(timesKept)
	default:
		return t, fault.Errorf(fault.Invalid, "a schedule needs cron, every or at").
			Breaking("timing", fault.RuleRequired)
	}
	return t, nil
}

// times returns the times of a timing that begins at a time. The error is for the client.
func (t *timing) times(begun time.Time) (times, error) {
	switch {
	case t.Every > 0:
		return interval{begun, t.Every}, nil
	case !t.At.IsZero():
		return once(t.At), nil
	}
	zone, err := time.LoadLocation(t.Zone)
	if err != nil || t.Zone == "Local" {
		return nil, fault.Errorf(fault.Invalid,
			"cron.time_zone %.64q is no zone of the IANA database: want one such as Europe/Berlin, or none for UTC",
			t.Zone).
			Breaking("cron.time_zone", fault.RuleFormat)
	}
	refuse := func(why string) error {
		return fault.Errorf(fault.Invalid, "cron.expression %.256q: %s", t.Cron, why).
			Breaking("cron.expression", fault.RuleFormat)
	}
	if strings.HasPrefix(t.Cron, "TZ=") || strings.HasPrefix(t.Cron, "CRON_TZ=") {
		return nil, refuse("cron.time_zone names the zone")
	}
	parsed, err := cron.ParseStandard(t.Cron)
	if err != nil {
		return nil, refuse(fmt.Sprintf("want minute, hour, day of the month, month, day of the week, "+
			"as in 30 2 * * 1-5, or @daily: %v", err))
	}
	spec, is := parsed.(*cron.SpecSchedule)
	if !is {
		return nil, refuse("every takes an interval")
	}
	out := &clockTimes{spec: spec, zone: zone, hourly: spec.Hour&starBit != 0}
	if out.next(begun).IsZero() {
		return nil, refuse("this time does not come within five years")
	}
	return out, nil
}

// proto sets the timing of a schedule.
func (t *timing) proto(out *agentdv1.Schedule) {
	switch {
	case t.Every > 0:
		out.Timing = &agentdv1.Schedule_Every{Every: durationOf(t.Every)}
	case !t.At.IsZero():
		out.Timing = &agentdv1.Schedule_At{At: timeOf(t.At)}
	default:
		out.Timing = &agentdv1.Schedule_Cron{
			Cron: &agentdv1.CronTiming{Expression: t.Cron, TimeZone: t.Zone},
		}
	}
}

// once is one time.
type once time.Time

func (o once) next(after time.Time) time.Time {
	if at := time.Time(o); at.After(after) {
		return at
	}
	return time.Time{}
}

// interval is each time so long after the one before.
type interval struct {
	begun time.Time
	every time.Duration
}

func (i interval) next(after time.Time) time.Time {
	n := max(int64(after.Sub(i.begun)/i.every)+1, 1)
	return i.begun.Add(time.Duration(n * int64(i.every)))
}

// starBit is set in a field of an expression that is *.
const starBit = 1 << 63

// clockTimes are times of a clock in a zone.
type clockTimes struct {
	spec   *cron.SpecSchedule // in UTC
	zone   *time.Location
	hourly bool // in each hour that passes
}

// next implements times. Times of day are found on a clock that is never changed, and then placed on that of the zone:
// so each comes once a day. An expression for each hour goes by the hours that pass.
func (c *clockTimes) next(after time.Time) time.Time {
	if c.hourly {
		spec := *c.spec
		spec.Location = c.zone
		return utc(spec.Next(after.In(c.zone)))
	}
	spec := *c.spec
	spec.Location = time.UTC
	face := onClock(after.In(c.zone))
	// A time that was left out is an hour behind what the clock shows; the day before is far enough for any change.
	for at := face.Add(-24 * time.Hour); ; {
		if at = spec.Next(at); at.IsZero() {
			return time.Time{}
		}
		if is := place(at, c.zone); is.After(after) {
			return utc(is)
		}
	}
}

// onClock is what the clock of a time shows, as a time of UTC.
func onClock(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// place is the first time at which the clock of a zone shows what face does; if it never does, when it would without
// the change that leaves it out.
func place(face time.Time, zone *time.Location) time.Time {
	offset := func(at time.Time) time.Duration {
		_, seconds := at.In(zone).Zone()
		return time.Duration(seconds) * time.Second
	}
	before, after := offset(face.Add(-24*time.Hour)), offset(face.Add(24*time.Hour))
	early := face.Add(-max(before, after))
	for _, at := range []time.Time{early, face.Add(-min(before, after))} {
		if onClock(at.In(zone)).Equal(face) {
			return at
		}
	}
	return face.Add(-before)
}

func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
