"""What the shop needs of others: a stand-in for a bank and for a mail server."""

from __future__ import annotations

import asyncio

STOCK = ("chair", "table")


class Declined(Exception):
    """The bank refuses to charge the card."""


def charge_card(reference: str) -> None:
    print(f"bank: {reference} is paid")


async def send_mail(to: str, text: str) -> str:
    await asyncio.sleep(0)  # a mail server would be waited for here
    return f"To {to}: {text}"
