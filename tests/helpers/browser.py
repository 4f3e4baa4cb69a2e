"""A headless Chromium driven through its DevTools protocol: pages, input, pictures, and what it complains of."""

import base64
import contextlib
import json
import os
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SECONDS = 60.0  # against hangs
_FLAGS = (
    "headless", "disable-gpu", "no-first-run", "disable-background-networking", "disable-component-update",
    "hide-scrollbars", "remote-debugging-pipe", "host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip


def find_browser() -> str:
    """The browser's path; skips the test where there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no browser on PATH: none of {', '.join(BROWSERS)}")
    return found


class Browser:
    """One page in one browser. `complaints`: what it logged; `requests`: the addresses that it asked for."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int):
        self._process, self._to, self._back = process, to, back
        self._rest, self._count, self._session = b"", 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.loads = 0  # how often the page has been loaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(back, selectors.EVENT_READ)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Have the browser do something; returns what it answers."""
        found = self._answer(method, parameters)
        assert "error" not in found, (method, found["error"])
        result: dict[str, Any] = found["result"]
        return result

    def _answer(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The same with the whole answer, which may be an error."""
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        number = self._count
        end = time.monotonic() + SECONDS
        while True:
            found = self._next(end)
            if found.get("id") == number:
                return found

    def _next(self, end: float) -> dict[str, Any]:
        """The next message from the browser; what it says by itself is noted."""
        while b"\0" not in self._rest:
            assert self._selector.select(max(0.0, end - time.monotonic())), "the browser does not answer"
            piece = os.read(self._back, 2**16)
            assert piece, f"the browser ended: {self._process.poll()}"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method", ""), message.get("params", {}))
        return message

    def _note(self, method: str, said: dict[str, Any]) -> None:
        if method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console: {[part.get('value', part.get('description')) for part in said['args']]}")
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(f"exception: {said['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.complaints.append(f"{said['entry']['source']}: {said['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loads += 1

    def open(self, page: Path, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        """Load a page in a window of a size and in light or dark colours, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        loads = self.loads
        self.call("Page.navigate", url=page.as_uri())
        self.wait_for_load(loads)

    def wait_for_load(self, loads: int) -> None:
        """Wait until the page has been loaded more than `loads` times."""
        end = time.monotonic() + SECONDS
        while self.loads <= loads:
            self._next(end)

    def run(self, code: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression in the page is true; while the page is being loaded it is not."""
        end = time.monotonic() + SECONDS
        parameters = {"expression": f"Boolean({condition})", "returnByValue": True}
        while self._answer("Runtime.evaluate", parameters).get("result", {}).get("result", {}).get("value") is not True:
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """A mouse event: mouseMoved, mousePressed or mouseReleased."""
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **{**button, **more})

    def key(self, key: str) -> None:
        """Press and release a key."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Enter": 13, " ": 32, "Tab": 9, "End": 35, "Escape": 27}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        common = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0]))}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, file: Path, whole: bool = False) -> None:
        """A PNG file of what is visible, or of the whole page."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        file.write_bytes(base64.b64decode(data))

    def print(self, file: Path) -> None:
        """The page as PDF."""
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"]))


@contextlib.contextmanager
def browser_page(flags: Sequence[str] = ()) -> Iterator[Browser]:
    """A browser with an empty page and a profile of its own; skips the test where there is none."""
    program = find_browser()
    (read, to), (back, write) = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *(f"--{flag}" for flag in (*_FLAGS, f"user-data-dir={profile}", *flags)), *sandbox]
        shell = ["bash", "-c", f'exec "$@" 3<&{read} 4>&{write}', "bash", *command]
        process = subprocess.Popen(
            shell, pass_fds=(read, write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(read)
        os.close(write)
        try:
            yield Browser(process, to, back)
        finally:
            with contextlib.suppress(OSError):
                os.write(to, json.dumps({"id": 0, "method": "Browser.close"}).encode() + b"\0")
            os.close(to)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(back)
