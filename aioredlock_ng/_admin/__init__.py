"""What administrators do: look at locks, take them away, find faults, initialise nodes."""
