"""Tasks on a cluster of Dask: what stands on the runner's side, and in its scheduler.

What runs in its workers is `litejobs._runner.in_dask`.
"""
