package session

// Poll makes the watches of the manager's sessions look by themselves, as they do
// where the kernel tells nothing.
func (m *Manager) Poll() { m.opts.polls = true }
