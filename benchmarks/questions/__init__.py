"""One file per question; each has `TABLE`, the title of its table, and `ask(bench)`."""
