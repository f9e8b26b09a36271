"""Checks for settings that make a quorum unsafe: facts about the nodes in, findings out.

gather    asks the nodes, through the connections and with the rights that locks use
trial     tries the locks of each kind on one node, under random names
facts     what is known of each node
findings  one finding, and the advice that fits a server's error
checks    what is wrong with one node by itself
judge     what is wrong with all of them together, and `judge`, which says everything

Only the first two ask nodes; the others decide.
"""
