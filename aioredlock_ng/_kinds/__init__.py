"""Lock kinds: each is a small value that says what to send and how to read the answers."""
