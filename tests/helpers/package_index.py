"""A package index on this machine, with tiny wheels that stand for the real packages."""

import http.server
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def make_wheel(
    folder: Path, name: str, version: str, needs: tuple[str, ...] = (), size: int = 0, command: str = ""
) -> Path:
    """A wheel with one module that knows its version; `size`: bytes of ballast that do not compress.

    `command`: a program that it installs, which prints what it was started with.
    """
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    required = "".join(f"Requires-Dist: {one}\n" for one in needs)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        main = "import sys\ndef main():\n    print(*sys.argv[1:])\n"
        wheel.writestr(f"{module}/__init__.py", f"__version__ = {version!r}\n{main}")
        wheel.writestr(f"{module}/ballast", bytes(size))
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{required}")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        if command:
            wheel.writestr(f"{info}/entry_points.txt", f"[console_scripts]\n{command} = {module}:main\n")
        wheel.writestr(f"{info}/RECORD", f"{info}/RECORD,,\n")
    return path


class PackageIndex:
    """Serves the wheels of a folder; `asked` has every path that was asked for, `hold` keeps wheels back."""

    def __init__(self, folder: Path):
        self.folder, self.asked, self.url = folder, [], ""  # type: Path, list[str], str
        self.hold, self.holding = threading.Event(), threading.Event()
        self.hold.set()

    def page(self, name: str) -> bytes | None:
        """The links to a package's wheels; None if there is none."""
        wheels = sorted(self.folder.glob(f"{name.replace('-', '_')}-[0-9]*.whl"))
        links = (f'<a href="/files/{wheel.name.replace("+", "%2B")}">{wheel.name}</a>' for wheel in wheels)
        return "\n".join(links).encode() if wheels else None


@contextmanager
def serving(folder: Path) -> Iterator[PackageIndex]:
    """An index of the wheels in a folder while the block runs."""
    index = PackageIndex(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            kind, name = self.path.strip("/").split("/")[:2]
            if kind == "files":
                index.holding.set()
                index.hold.wait()
                content: bytes | None = (folder / name.replace("%2B", "+")).read_bytes()
            else:
                content = index.page(name)
            self.send_response(200 if content is not None else 404)
            self.send_header("Content-Type", "text/html" if kind == "simple" else "application/octet-stream")
            self.send_header("Content-Length", str(len(content or b"")))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        index.url = f"http://127.0.0.1:{server.server_port}/simple/"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield index
        finally:
            index.hold.set()
            server.shutdown()
            thread.join()
