"""What a manager lives in, from its start in a loop to its end."""
