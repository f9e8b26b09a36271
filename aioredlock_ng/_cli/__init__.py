"""The commands behind `cli`: one module each."""
