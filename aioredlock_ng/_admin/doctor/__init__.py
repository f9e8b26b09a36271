"""Checks for settings that make a quorum unsafe: facts about the nodes in, findings out.

gather       asks the nodes, through the connections and with the rights that locks use
self_test    tries on one node what locks do, under random names
trial        … and lists what is tried: all that locks of each kind do
dispensable  what locks can do without, of all that is tried
facts        what is known of each node
findings     one finding, and the advice that fits what a server has said
checks       what is wrong with one node by itself
judge        what is wrong with all of them together, and `judge`, which says everything

Only the first three ask nodes; the others decide.
"""
