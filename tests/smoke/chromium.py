# SPDX-License-Identifier: BSD-3-Clause
"""Headless Chromium by its own protocol, over a pair of pipes: pages with different screens and colour schemes."""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

import child

PROGRAM = shutil.which("chromium")


class Browser:
    """One page. Its console and its exceptions are collected in `complaints`."""

    def __init__(self, patience=60):
        self.patience, self.number, self.buffer, self.complaints = patience, 0, b"", []
        self.folder = tempfile.mkdtemp(prefix="kvr-chromium.")
        reads, self.writes = os.pipe()
        self.reads, writes = os.pipe()

        def descriptors():
            """The browser reads descriptor 3 and writes descriptor 4."""
            child.die_with_parent()
            a, b = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (reads, writes))
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.run = subprocess.Popen([PROGRAM, "--headless=new", "--hide-scrollbars", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                                     "--disable-extensions", "--disable-background-networking", "--remote-debugging-pipe",
                                     f"--user-data-dir={self.folder}", "about:blank"],
                                    preexec_fn=descriptors, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL)
        os.close(reads)
        os.close(writes)
        os.set_blocking(self.reads, False)
        self.session = None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")

    def message(self):
        """The next message from the browser, or None after a timeout or its end."""
        end = time.monotonic() + self.patience
        while b"\0" not in self.buffer:
            try:
                part = os.read(self.reads, 1 << 20)
                if not part:
                    return None
                self.buffer += part
            except BlockingIOError:
                if time.monotonic() > end:
                    return None
                time.sleep(0.01)
        line, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self.number += 1
        what = {"id": self.number, "method": method, "params": params}
        if self.session:
            what["sessionId"] = self.session
        os.write(self.writes, json.dumps(what).encode() + b"\0")
        while m := self.message():
            if m.get("id") == self.number:
                if "error" in m:
                    raise RuntimeError(f"{method}: {m['error']}")
                return m["result"]
            if m.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                self.complaints.append(m["params"])
        raise RuntimeError(f"{method}: the browser does not answer")

    def screen(self, width, height, dark, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, url):
        self.call("Page.navigate", url=url)

    def value(self, expression):
        """The value of a JavaScript expression in Python."""
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]))

    def close(self):
        self.run.terminate()
        try:
            self.run.wait(20)
        except subprocess.TimeoutExpired:
            self.run.kill()
            self.run.wait()
        os.close(self.writes)
        os.close(self.reads)
        shutil.rmtree(self.folder, ignore_errors=True)
