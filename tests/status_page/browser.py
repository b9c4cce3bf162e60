"""Headless Chromium, driven through its debugging pipe: the DevTools protocol, without a library."""

from __future__ import annotations

import base64
import itertools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from typing import Any, Callable, Dict, List

BINARY = os.environ.get("CHROMIUM", "chromium")
_FLAGS = [
    "--headless",
    "--no-sandbox",  # as root, and its pages are ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


class Browser:
    """A process of Chromium; `page()` opens tabs."""

    def __init__(self) -> None:
        binary = shutil.which(BINARY)
        if binary is None:
            raise RuntimeError(f"{BINARY} was not found: install Debian's chromium")
        self._profile = tempfile.mkdtemp(prefix="attnd-page-")
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # Chromium reads from descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_browser} 4>&{from_browser}', "bash", binary, *_FLAGS]
            + [f"--user-data-dir={self._profile}", "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._ids = itertools.count(1)
        self._answers: Dict[int, "queue.Queue[Dict[str, Any]]"] = {}
        self._pages: Dict[str, "Page"] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        rest = b""
        while True:
            some = os.read(self._read, 1 << 20)
            if not some:
                return
            *messages, rest = (rest + some).split(b"\0")
            for text in messages:
                message = json.loads(text)
                if "id" in message:
                    self._answers[message["id"]].put(message)
                elif message.get("sessionId") in self._pages:
                    self._pages[message["sessionId"]].events.append(message)

    def call(self, method: str, session: str = "", **parameters: Any) -> Dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._answers[number] = queue.Queue()
        os.write(self._write, json.dumps(message).encode() + b"\0")
        answer = self._answers[number].get(timeout=60)
        del self._answers[number]
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def page(self, width: int = 1440, height: int = 900) -> "Page":
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        self._pages[session] = page
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        return page

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._process.wait(10)
        except (RuntimeError, queue.Empty, OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


class Page:
    """A tab, with everything that it asked for and complained of."""

    def __init__(self, browser: Browser, session: str, target: str):
        self._browser = browser
        self._session = session
        self._target = target
        self.events: List[Dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> Dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def evaluate(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 20) -> Any:
        """The expression's value, as soon as it is true."""
        end = time.monotonic() + seconds
        while True:
            try:
                value = self.evaluate(script)
            except RuntimeError:  # what it names is not there yet
                value = None
            if value:
                return value
            assert time.monotonic() < end, f"not within {seconds} s: {script}"
            time.sleep(0.05)

    def resize(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def press(self, key: str, shift: bool = False) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        parts = {"key": key, "code": key, "modifiers": 8 if shift else 0}
        parts["windowsVirtualKeyCode"] = codes[key]
        down = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **parts, **down)
        self.call("Input.dispatchKeyEvent", type="keyUp", **parts)

    def picture(self, whole: bool = False) -> bytes:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def _of(self, method: str) -> List[Dict[str, Any]]:
        return [event["params"] for event in list(self.events) if event["method"] == method]

    def asked(self) -> List[str]:
        """Every address that it asked for, in order."""
        return [one["request"]["url"] for one in self._of("Network.requestWillBeSent")]

    def complaints(self) -> List[str]:
        """Errors and warnings on its console, exceptions, and what the browser logged of it."""
        said = [
            f"console.{one['type']}: {one['args']}"
            for one in self._of("Runtime.consoleAPICalled")
            if one["type"] in ("error", "warning", "assert")
        ]
        said += [f"exception: {one['exceptionDetails']}" for one in self._of("Runtime.exceptionThrown")]
        return said + [f"log: {one['entry']}" for one in self._of("Log.entryAdded")]

    def answers(self, path: str) -> Callable[[int], str]:
        """answers("/metrics")(i) is the text of the i-th whole answer of that path."""
        of = {
            one["requestId"]
            for one in self._of("Network.responseReceived")
            if one["response"]["url"].endswith(path)
        }
        done = [one["requestId"] for one in self._of("Network.loadingFinished") if one["requestId"] in of]
        return lambda i: self.call("Network.getResponseBody", requestId=done[i])["body"]
