"""A headless Chromium for tests: Qt's, from a wheel, in a process of its own.

The process reads orders from standard input, one JSON object a line, and answers each with
one. Run as a program it is the browser; imported, it gives ``opened``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 600.0
_CHROMIUM = "--disable-gpu-watchdog --disable-hang-monitor --disable-dev-shm-usage"
"""It gives up for no wait, however busy the machine is, nor for a small shared memory."""
_AXE = Path(__file__).parent / "axe" / "axe.min.js"
_RUN_AXE = """(() => {
  window.found = null;
  axe.run('%s', {resultTypes: ['violations']}).then(
    result => { window.found = result.violations.map(each =>
      [each.impact, each.id, each.nodes.map(node => node.html.slice(0, 200))]); });
  return 1;
})()"""
SERIOUS = ("serious", "critical")
"""The impacts of faults that keep somebody from reading a page."""
FEW_ROWS = """document.querySelectorAll('tbody').forEach(
  body => { while (body.rows.length > 3) body.deleteRow(3); })"""
"""Leaves the first rows of each table, where all are alike to axe-core."""


class Browser:
    """A browser with one tab."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def order(self, **order: Any) -> Any:
        """Give an order and wait for what comes of it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            code = self._process.wait(PATIENCE_SECONDS)
            raise AssertionError(f"The browser ended with {code}.\n{self._log.read_text()}")
        return json.loads(answer)

    def see(self, address: str | None, *words: str, picture: Path | None = None) -> str:
        """The text of a page once it shows the words; without an address, of the same page.

        Fails if it does not show them, or if the picture has hardly any colours.
        """
        seen = self.order(address=address, words=words, picture=str(picture or ""))
        missing = [word for word in words if word not in seen["text"]]
        assert not missing, f"{missing} not in: {seen['text']}"
        assert picture is None or seen["colours"] > 2, f"nothing to see in {picture}"
        return str(seen["text"])

    def press(self, label: str) -> None:
        """Click what has this label: a tab, say, or a button."""
        self.order(press=label)

    def enter(self, text: str) -> None:
        """Type into the one password field of the page, and press Enter."""
        self.order(enter=text)

    def look(self, width: int, scheme: str) -> None:
        """Make the window so many pixels wide, and the page ``light`` or ``dark``."""
        self.order(width=width, scheme=scheme)

    def run(self, script: str) -> Any:
        """The value of a script within the page, as JSON has it."""
        return self.order(script=script)["value"]

    def photograph(self, picture: Path) -> None:
        """The whole page, however long, as one picture."""
        self.order(whole=str(picture))

    def faults(self, part: str = "html") -> list[list[Any]]:
        """What axe-core finds in a part of the page: impact, rule and elements of each fault."""
        if self.run("typeof axe") == "undefined":
            self.run(f"(() => {{ {_AXE.read_text()}; return 1 }})()")
        self.run(_RUN_AXE % part)
        while (found := self.run("window.found")) is None:
            time.sleep(0.1)
        return list(found)

    def print_to(self, path: Path) -> None:
        """The page as it is printed, as PDF."""
        self.order(pdf=str(path))

    def heard(self) -> tuple[list[str], list[str]]:
        """Messages on the console, and addresses that were asked for, since the last question."""
        answer = self.order(heard=True)
        return answer["messages"], answer["requests"]


class CannotStartError(Exception):
    """The browser lacks something on this machine.

    The wheel holds Chromium without the libraries of the system that it needs, such as
    libnss3, libxkbcommon, libEGL and libfontconfig.
    """


@contextmanager
def opened(log: Path) -> Iterator[Browser]:
    """A browser, closed in the end; what Chromium says goes to a file.

    Raises:
        CannotStartError: It cannot start here.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    environment["QT_QPA_PLATFORM"] = "offscreen"
    environment["QTWEBENGINE_CHROMIUM_FLAGS"] = _CHROMIUM
    if os.geteuid() == 0:  # Chromium refuses to keep root in its sandbox
        environment["QTWEBENGINE_DISABLE_SANDBOX"] = "1"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [sys.executable, __file__],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as process,
    ):
        browser = Browser(process, log)
        try:
            try:
                browser.order()  # it has started
            except AssertionError:
                last = log.read_text().strip().splitlines()[-1]
                if not last.startswith(("ImportError: ", "ModuleNotFoundError: ")):
                    raise
                words = f"The browser of the tests cannot start here: {last}."
                raise CannotStartError(words) from None
            yield browser
        finally:
            process.terminate()
            with suppress(BrokenPipeError):  # what it was not given before it ended
                process.communicate()


def main() -> None:
    """Carry out orders until standard input ends."""
    from PySide6.QtCore import QSize, QUrl
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtTest import QTest
    from PySide6.QtWebEngineCore import (
        QWebEnginePage,
        QWebEngineProfile,
        QWebEngineSettings,
        QWebEngineUrlRequestInterceptor,
    )
    from PySide6.QtWebEngineWidgets import QWebEngineView
    from PySide6.QtWidgets import QApplication

    messages: list[str] = []
    requests: list[str] = []

    class Listening(QWebEnginePage):
        def javaScriptConsoleMessage(self, level: Any, text: str, line: int, source: str) -> None:
            messages.append(f"{source}:{line}: {text}")

    class Noting(QWebEngineUrlRequestInterceptor):
        def interceptRequest(self, info: Any) -> None:
            requests.append(info.requestUrl().toString())

    # PySide 6.12 gives away a reference to None with every wait, and Python 3.11 has some 5,000:
    # a page that takes long, as on a busy machine, would end the process.
    spare = [None] * 1_000_000
    app = QApplication(sys.argv[:1])
    profile = QWebEngineProfile()  # off the record: nothing is kept
    noting = Noting()
    profile.setUrlRequestInterceptor(noting)
    view = QWebEngineView()
    page = Listening(profile)
    page.settings().setAttribute(QWebEngineSettings.WebAttribute.ShowScrollBars, False)
    loaded: list[bool] = []
    page.loadFinished.connect(loaded.append)
    printed: list[bool] = []
    page.pdfPrintingFinished.connect(lambda path, well: printed.append(well))
    view.setPage(page)
    view.resize(QSize(1400, 1000))
    view.show()

    def evaluated(script: str) -> Any:
        found: list[Any] = []
        view.page().runJavaScript(script, found.append)
        while not found:
            QTest.qWait(10)
        return found[0]

    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {}
        if "enter" in order:
            evaluated(_ENTER % json.dumps(order["enter"]))
        if "press" in order:
            evaluated(_PRESS % json.dumps(order["press"]))
        if order.get("address"):
            loaded.clear()
            view.load(QUrl(order["address"]))
            while not loaded:  # or the page before it would still be seen
                QTest.qWait(10)
        if "words" in order:
            until = time.monotonic() + PATIENCE_SECONDS
            while True:
                answer["text"] = evaluated("document.body ? document.body.innerText : ''") or ""
                if all(word in answer["text"] for word in order["words"]):
                    break
                if time.monotonic() > until:
                    break
                QTest.qWait(50)
        if "width" in order:
            evaluated(_SCHEME % json.dumps(order["scheme"]))
            view.resize(QSize(order["width"], _TILE))
            QTest.qWait(200)
        if "script" in order:
            answer["value"] = json.loads(evaluated(f"JSON.stringify({order['script']})") or "null")
        if "heard" in order:
            answer |= {"messages": messages[:], "requests": requests[:]}
            messages.clear()
            requests.clear()
        if "pdf" in order:
            printed.clear()
            page.printToPdf(order["pdf"])
            while not printed:
                QTest.qWait(20)
        if "whole" in order:
            evaluated("document.querySelector('nav')?.style.setProperty('position', 'static'), 1")
            height = int(evaluated("document.documentElement.scrollHeight"))
            whole = QImage(view.width(), height, QImage.Format.Format_RGB32)
            painter = QPainter(whole)
            for top in range(0, height, _TILE):
                evaluated(f"window.scrollTo(0, {top}), 1")
                QTest.qWait(350)  # let it paint
                at = int(evaluated("window.scrollY"))
                painter.drawImage(0, at, view.grab().toImage())
            painter.end()
            whole.save(order["whole"])
        if order.get("picture"):
            QTest.qWait(500)  # let it paint
            image = view.grab().toImage()
            image.save(order["picture"])
            small = image.scaled(QSize(200, 150))
            answer["colours"] = len({small.pixel(x, y) for x in range(200) for y in range(150)})
        print(json.dumps(answer), flush=True)
    page.deleteLater()  # before its profile
    app.processEvents()
    del spare


_TILE = 2200
_SCHEME = """
(() => {  // the platform of a test has no theme to prefer one by
  window.schemes ??= [...document.styleSheets].flatMap(sheet => [...sheet.cssRules])
    .filter(rule => rule.media?.mediaText.includes('prefers-color-scheme: dark'));
  for (const rule of window.schemes)
    rule.media.mediaText = %s === 'dark' ? 'screen' : 'not all';
  return window.schemes.length;
})()
"""
_PRESS = """
[...document.querySelectorAll('*')]
  .filter(each => !each.children.length && each.textContent.trim() === %s).at(-1).click()
"""
_ENTER = """
(() => {
  const field = document.querySelector('input[type=password]');
  const set = Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set;
  set.call(field, %s);
  field.dispatchEvent(new Event('input', {bubbles: true}));
  field.closest('form').requestSubmit();
})()
"""

if __name__ == "__main__":
    main()
