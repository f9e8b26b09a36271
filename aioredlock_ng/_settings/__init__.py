"""The settings of users: options, nodes, durations; checked, with messages that name what is wrong."""
