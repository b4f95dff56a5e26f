package account

// Len returns how many accounts are in memory.
func (a *Accounts) Len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.byTenant)
}
