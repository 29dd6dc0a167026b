"""The documentation's screenshots. `make screenshots` writes them to `docs/images`; other runs only check the pages."""

from __future__ import annotations

import base64
import os
import struct
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tellback import Tellback
from tellback.demo import SAMPLE_USER, load_sample
from tellback.types import ChatUsage
from tests.browser.browser_log import finish_animations
from tests.browser.chat_actions import send_message
from tests.browser.showcase_server import BOOKING_REQUEST, DINNER_QUESTION, WORK_QUESTION
from tests.browser.site import Site, serve_site
from tests.integration.server.server_process import ROOT

IMAGES = ROOT / "docs" / "images"
WRITES_IMAGES = os.environ.get("TELLBACK_SCREENSHOTS") == "1"
VIEWPORT = {"width": 1280, "height": 800}
SCALE = 2
MAX_BYTES = 150_000
USAGE_USER = "lena"
USAGE_START = datetime(2026, 10, 1, 9, tzinfo=UTC)
USAGE_DAYS = 30

_READ_PIXELS = """async (png) => {
  const image = new Image();
  image.src = 'data:image/png;base64,' + png;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  const pixels = canvas.getImageData(0, 0, image.width, image.height).data;
  let text = '';
  for (let at = 0; at < pixels.length; at += 32768) text += String.fromCharCode(...pixels.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""


@pytest_asyncio.fixture(loop_scope="session")
async def showcase_site(browser: Browser, tmp_path: Path) -> AsyncIterator[Site]:
    store = tmp_path / "tellback.db"
    async with Tellback(store, worker=False, embedder=None) as tb:
        await load_sample(tb)
        await seed_usage(tb)
    async with serve_site(store, "--agents", "tests.browser.showcase_server:install") as site:
        yield site


async def seed_usage(tb: Tellback) -> None:
    """Store a month of answers by two models."""
    tb.clock = lambda: USAGE_START
    log = tb.user(USAGE_USER).conversations
    conversation = await log.create("chat")
    for day in range(USAGE_DAYS):
        at = USAGE_START + timedelta(days=day)
        share = 0.25 if at.weekday() >= 5 else 1.0
        for model, base, price in (("claude-sonnet-4-5", 9_000, 4e-6), ("gpt-5-mini", 14_000, 5e-7)):
            tokens = round(share * (base + 700 * (day * 7 % 11)))
            usage = ChatUsage(tokens, tokens // 9, cost_usd=tokens * price, model=model)
            await log.append_assistant_turn(conversation.id, "Done.", created_at=at, model=model, usage=usage)


async def take_documentation_screenshot(page: Page, name: str) -> None:
    """Write `docs/images/console-<name>-<theme>.png` for both themes, if the run writes images."""
    await finish_animations(page)
    if not WRITES_IMAGES:
        return
    IMAGES.mkdir(parents=True, exist_ok=True)
    await page.evaluate("document.activeElement.blur()")
    await page.mouse.move(0, 0)
    for theme in ("light", "dark"):
        await page.emulate_media(color_scheme=theme)
        await finish_animations(page)
        image = await compress_png(page, await page.screenshot())
        assert len(image) <= MAX_BYTES, f"{name}-{theme} has {len(image)} bytes"
        (IMAGES / f"console-{name}-{theme}.png").write_bytes(image)
    await page.emulate_media(color_scheme="light")


async def compress_png(page: Page, png: bytes) -> bytes:
    """Reduce an image to the 256 most frequent colours. Chromium decodes it, so that no imaging library is needed."""
    blank = await page.context.new_page()
    width, height, pixels = await blank.evaluate(_READ_PIXELS, base64.b64encode(png).decode())
    await blank.close()
    numbers = np.frombuffer(base64.b64decode(pixels), ">u4") >> 8  # RGBA without the last byte
    counts = np.bincount(numbers, minlength=1 << 24)
    unique = np.flatnonzero(counts)
    colors = np.stack([unique >> 16, unique >> 8 & 255, unique & 255], axis=1)
    palette = colors[np.argsort(-counts[unique], kind="stable")[:256]]  # ties keep their order
    nearest = np.zeros(1 << 24, np.uint8)
    nearest[unique] = ((colors[:, None] - palette[None]) ** 2).sum(axis=2).argmin(axis=1)
    # Each row of a PNG starts with the number of its filter: 0 is no filter.
    rows = np.hstack([np.zeros((height, 1), np.uint8), nearest[numbers].reshape(height, width)]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = {
        b"IHDR": header,
        b"PLTE": palette.astype(np.uint8).tobytes(),
        b"IDAT": zlib.compress(rows, 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


async def test_the_pages_of_the_documentation_show_the_sample_data(showcase_site: Site, browser: Browser) -> None:
    settings: dict[str, Any] = {"viewport": VIEWPORT, "device_scale_factor": SCALE if WRITES_IMAGES else 1}
    context = await browser.new_context(**settings, locale="en-GB", timezone_id="UTC", color_scheme="light")
    page, site = await context.new_page(), showcase_site

    await page.goto(site.at("/", user=SAMPLE_USER))
    await send_message(page, WORK_QUESTION)
    answer = await send_message(page, DINNER_QUESTION)
    await answer.get_by_role("button", name="4 memories recalled").click()
    await expect(answer.get_by_role("link", name="Ana, Maya's sister, is allergic to nuts.")).to_be_visible()
    await take_documentation_screenshot(page, "chat")
    await answer.get_by_role("button", name="Why this answer").click()
    await expect(page.get_by_role("dialog")).to_contain_text("Ana, Maya's sister, is allergic to nuts.")
    await take_documentation_screenshot(page, "explanation")

    await page.goto(site.at("/memory", user=SAMPLE_USER))
    await expect(page.get_by_role("article")).to_have_count(4)
    await take_documentation_screenshot(page, "memory")

    await page.goto(site.at("/timeline", user=SAMPLE_USER))
    await expect(page.get_by_role("listitem").first).to_contain_text("Superseded")
    await take_documentation_screenshot(page, "timeline")

    await page.goto(site.at("/", user=SAMPLE_USER, agent="Restaurant"))
    await send_message(page, BOOKING_REQUEST)
    await expect(await send_message(page, "Indian")).to_contain_text("Jaipur on Friday, 4 December at 19:30 for 2")
    await page.goto(site.at("/routes", user=SAMPLE_USER, agent="Restaurant"))
    await expect(page.locator("g.node.current")).to_contain_text("Offer the tables")
    await page.set_viewport_size({"width": VIEWPORT["width"], "height": 1_110})
    await take_documentation_screenshot(page, "routes")

    until = USAGE_START + timedelta(days=USAGE_DAYS - 1)
    dates = {"since": f"{USAGE_START:%Y-%m-%d}", "until": f"{until:%Y-%m-%d}"}
    await page.set_viewport_size(VIEWPORT)  # type: ignore[arg-type]
    await page.goto(site.at("/usage", user=USAGE_USER, **dates))
    await expect(page.locator("canvas")).to_have_count(2)
    await take_documentation_screenshot(page, "usage")
    await page.goto("about:blank")  # an open page would report the stopped server
    await context.close()
