package daemon

import "github.com/apzuk3/agentd/internal/schedule"

// openSchedules makes what keeps schedules, if there is a place for them.
func (d *Daemon) openSchedules() {
	db := d.Database()
	if d.ledger == nil || db == nil {
		return
	}
	d.schedules = schedule.New(schedule.Config{DB: db, Objects: d.ledger, Check: d.agents.Check}, func() {
		if driver := d.driver.Load(); driver != nil {
			driver.Poke()
		}
	})
}

// startDriver starts what is due of schedules from now on.
func (d *Daemon) startDriver() {
	if d.schedules == nil {
		return
	}
	d.driver.Store(schedule.Drive(schedule.DriverConfig{
		DB: d.Database(), Objects: d.ledger, Mine: d.isFirst, Start: d.server.StartTurn,
		StartGoal: d.server.StartGoal, Logger: d.log,
	}))
}

// stopDriver ends what startDriver has started.
func (d *Daemon) stopDriver() {
	if driver := d.driver.Load(); driver != nil {
		driver.Close()
	}
}
