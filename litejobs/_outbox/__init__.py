"""Delivery from an application's own database; may import _tasks and what is below."""
