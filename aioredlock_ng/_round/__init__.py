"""One question to all nodes: rounds, their deadlines, and waiting with a limit."""
