"""What the tasks of one process settle among themselves, before a node is asked."""
