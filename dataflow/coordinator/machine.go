package coordinator

// Machine is the coordinator of one pipeline. It is not safe for concurrent use.
type Machine struct{}

// New returns a machine that has not been elected yet: step Elected first.
func New() *Machine { return &Machine{} }

// Step takes one event at the time now, in µs since 1970, and returns what the driver has to do, in order. A time smaller
// than an earlier one counts as that one.
func (m *Machine) Step(now int64, ev Event) []Action { return nil }

// Deadline returns when the machine wants a Tick at the latest, in µs since 1970; 0 = it waits for events only.
func (m *Machine) Deadline() int64 { return 0 }
