"""What `sync` is made of: the thread of the loop, and what other threads hold."""
