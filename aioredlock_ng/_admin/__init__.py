"""The work of administrators: look at locks, delete them, find faults, initialise nodes."""
