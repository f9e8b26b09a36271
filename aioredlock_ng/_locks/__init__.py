"""What users hold: locks, leases, elections, decorators."""
