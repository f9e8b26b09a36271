"""What users give: options, nodes, durations; checked, and with messages that name what is wrong."""
