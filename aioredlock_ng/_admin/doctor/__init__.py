"""What silently voids a quorum: facts about the nodes in, findings out.  Nothing here asks a node anything.

facts      what is known of each node; `_admin.diagnosis` gathers it through the connections that locks use
findings   one finding, and the advice that fits what a server has said
checks     what is wrong with one node by itself
judge      what is wrong with all of them together, and `judge`, which says everything
"""
