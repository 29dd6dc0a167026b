"""Chat."""

from __future__ import annotations

from nicegui import ui

from recollect.console.frame import console_page
from recollect.console.seat import Seat


@console_page("/", "Chat")
async def chat(seat: Seat) -> None:
    """Talk, with what is remembered."""
    ui.label(f"Hello {seat.user_id}")
