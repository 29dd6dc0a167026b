"""The browser's errors during a test, and screenshots of its pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from playwright.async_api import ConsoleMessage, Error, Page, Request, Response

SCREENSHOT_FOLDER = Path(__file__).parents[2] / ".screenshots"
PHONE_SIZE = {"width": 390, "height": 844}
DESKTOP_SIZE = {"width": 1280, "height": 800}

# Finishes all animations after a change of size or theme, except endless ones such as spinners. Quasar reacts to a new
# size with a delay and then slides its drawer away. A page in the background gets no animation frames.
_FINISH_ANIMATIONS = """async () => {
  const frame = () => new Promise(go => { requestAnimationFrame(go); setTimeout(go, 100); });
  const drawer = document.querySelector('.q-drawer');
  const isAway = () => innerWidth >= 900 || !drawer || drawer.getBoundingClientRect().right <= 0;
  const end = performance.now() + 400;
  for (let round = 0; round < 3 || (!isAway() && performance.now() < end); round += 1) {
    await frame();
    for (const each of document.getAnimations())
      if (each.effect.getComputedTiming().endTime !== Infinity) each.finish();
  }
}"""


@dataclass
class BrowserLog:
    """Console errors (including content policy violations), script errors and failed requests."""

    entries: list[str] = field(default_factory=list)
    ignored: list[Callable[[str], bool]] = field(default_factory=list)

    def listen(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", self._on_error)
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)

    def ignore(self, part: str) -> None:
        """Ignore errors that contain this text, because the test causes them."""
        self.ignored.append(lambda text: part in text)

    @property
    def problems(self) -> list[str]:
        return [text for text in self.entries if not any(tolerates(text) for tolerates in self.ignored)]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.entries.append(f"console {message.type}: {message.text}")

    def _on_error(self, error: Error) -> None:
        self.entries.append(f"script: {error}")

    def _on_failed(self, request: Request) -> None:
        # Leaving a page aborts its pending requests.
        if "ERR_ABORTED" not in (request.failure or ""):
            self.entries.append(f"failed: {request.method} {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.entries.append(f"refused: {response.status} {response.url}")


async def take_screenshot(page: Page, name: str) -> Path:
    """Save a screenshot named after the page and its width: `chat-390.png`."""
    SCREENSHOT_FOLDER.mkdir(exist_ok=True)
    width = (page.viewport_size or {"width": 0})["width"]
    path = SCREENSHOT_FOLDER / f"{name}-{width}.png"
    await page.screenshot(path=path)
    return path


async def finish_animations(page: Page) -> None:
    """Finish all running animations."""
    await page.evaluate(_FINISH_ANIMATIONS)


async def check_layout(page: Page, name: str) -> None:
    """Save screenshots for desktop and phone, light and dark; fail if the page is wider than the screen."""
    for size in (DESKTOP_SIZE, PHONE_SIZE):
        await page.set_viewport_size(size)  # type: ignore[arg-type]
        for theme in ("light", "dark"):
            await page.emulate_media(color_scheme=theme)
            await finish_animations(page)
            await take_screenshot(page, f"{name}-{theme}")
        overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{name} is {overflow} px too wide at {size['width']} px"
    await page.emulate_media(color_scheme="light")
    await page.set_viewport_size(DESKTOP_SIZE)  # type: ignore[arg-type]
