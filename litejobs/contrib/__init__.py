"""What other libraries are given, so that they and litejobs can share one file.

Each module is for one of them, and imports neither that library nor a room of litejobs.
"""
