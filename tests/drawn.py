"""What random tests draw from, beside what hypothesis has."""

from __future__ import annotations

from hypothesis import strategies as st

CHARACTERS = st.characters(exclude_categories=["Cs"])
"""Those of `st.text()`, all that UTF-8 can say. To find these out by the codec itself,
as hypothesis does, takes each process two seconds."""
