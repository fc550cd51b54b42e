"""What litejobs costs, beside what SQLite alone costs in the same minute.

`python -m tests.bench` runs every workload but `profile` in interleaved rounds and
prints medians. `_figures` says how figures are taken and compared, `_bare` is the
reference, `_workloads`, `_attempts`, `_processes` and `_large` are what is measured,
`_statements` is the profile; `profiles/` keeps some of them.
"""
