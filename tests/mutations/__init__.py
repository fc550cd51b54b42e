"""Is each object of `sql/` looked at by a test?

The list beside this file names mistakes in triggers, views and named constraints, and
for each a test that notices it:

    python -m tests.mutations               try all
    python -m tests.mutations NAME …        try those of some objects
    python -m tests.mutations find          look for a mistake that a test notices, of
                                            each object that has none in the list
    python -m tests.mutations find NAME …   try those of some objects, and look for
                                            others in place of what is not noticed
    python -m tests.mutations find --small  and for one small mistake of each trigger
                                            and view

A mistake that no test notices is a test that is missing.
"""
