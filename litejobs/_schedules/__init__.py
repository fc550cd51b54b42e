"""When, and the rows for it; may import _tasks and what is below."""
