"""One process's side of a lock: its calls, their queue and attempts, how they wait, and what they hold."""
