"""Elections: what a leader announces, and what observers see of it (R31, R32).

The campaign itself is a mutex like any other: nothing of it is here.
"""
