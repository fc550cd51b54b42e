"""Is each object of `sql/` looked at by a test?

The list beside this file names small mistakes in triggers, views and named constraints,
and for each a test that notices it:

    python -m tests.mutations            try all
    python -m tests.mutations NAME …     try those of some objects
    python -m tests.mutations find       look for mistakes, and tests that notice them,
                                         for objects that have none in the list

A mistake that no test notices is a test that is missing.
"""
