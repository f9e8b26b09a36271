"""What silently voids a quorum: facts about the nodes in, findings out.

`judge` decides; `_admin/diagnosis`, in the shell, gathers the facts through the connections that locks use.
"""
