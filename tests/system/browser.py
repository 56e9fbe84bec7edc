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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 600.0
_GONE = "The browser has gone."
_PROBE = "from PySide6 import QtTest, QtWebEngineCore, QtWebEngineWidgets, QtWidgets"


class Browser:
    """A browser with one tab."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def order(self, **order: Any) -> Any:
        """Give an order and wait for what comes of it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, _GONE
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


def missing() -> str | None:
    """What the browser lacks on this machine; None if it can start.

    The wheel holds Chromium without the libraries of the system that it needs, such as
    libnss3, libxkbcommon, libEGL and libfontconfig.
    """
    probe = subprocess.run(
        [sys.executable, "-c", _PROBE], capture_output=True, text=True, check=False
    )
    if probe.returncode == 0:
        return None
    last = probe.stderr.strip().splitlines()[-1]
    assert last.startswith(("ImportError: ", "ModuleNotFoundError: ")), probe.stderr
    return f"The browser of the tests cannot start here: {last}."


@contextmanager
def opened(log: Path) -> Iterator[Browser]:
    """A browser, closed in the end; what Chromium says goes to a file."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
    environment["QT_QPA_PLATFORM"] = "offscreen"
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
        browser = Browser(process)
        try:
            try:
                browser.order()  # it has started
            except AssertionError as error:
                raise AssertionError(f"{error}\n{log.read_text()}") from None
            yield browser
        finally:
            process.terminate()


def main() -> None:
    """Carry out orders until standard input ends."""
    from PySide6.QtCore import QSize, QUrl
    from PySide6.QtTest import QTest
    from PySide6.QtWebEngineCore import QWebEngineProfile
    from PySide6.QtWebEngineWidgets import QWebEngineView
    from PySide6.QtWidgets import QApplication

    app = QApplication(sys.argv[:1])
    profile = QWebEngineProfile()  # off the record: nothing is kept
    view = QWebEngineView(profile)
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
            view.load(QUrl(order["address"]))
        if "words" in order:
            until = time.monotonic() + PATIENCE_SECONDS
            while True:
                answer["text"] = evaluated("document.body ? document.body.innerText : ''") or ""
                if all(word in answer["text"] for word in order["words"]):
                    break
                if time.monotonic() > until:
                    break
                QTest.qWait(50)
        if order.get("picture"):
            QTest.qWait(500)  # let it paint
            image = view.grab().toImage()
            image.save(order["picture"])
            small = image.scaled(QSize(200, 150))
            answer["colours"] = len({small.pixel(x, y) for x in range(200) for y in range(150)})
        print(json.dumps(answer), flush=True)
    view.page().deleteLater()  # before its profile
    app.processEvents()


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
