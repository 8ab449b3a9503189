"""Drives a page in Chromium with Python's own library alone, for tests of the pages of `look` and of the playground."""
import fcntl
import json
import os
import shutil
import subprocess
import sys


def chromium():
    """Returns the browser's program; skips the test that has none."""
    import pytest
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None) or pytest.skip("no chromium in PATH; no page was opened")


class Browser:
    """One page of a headless Chromium, driven through its pipe: messages are JSON, each ended by a zero byte."""

    def __init__(self, program, profile):
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for pair in (os.pipe(), os.pipe()) for end in pair]
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}",
             "--window-size=1280,900"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False, preexec_fn=lambda: (os.dup2(ends[0], 3), os.dup2(ends[3], 4)))
        self.sending, self.receiving = os.fdopen(ends[1], "wb"), os.fdopen(ends[2], "rb")
        os.close(ends[0]), os.close(ends[3])
        self.count, self.rest, self.session, self.events, self.errors, self.requests = 0, b"", None, [], [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.session = None  # commands go to the browser, not its page
        self.call("Browser.close")
        self.process.wait(20)

    def receive(self):
        while b"\0" not in self.rest:
            self.rest += self.receiving.read1(1 << 20) or sys.exit("the browser closed its pipe; it has to run here")
        message, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(message)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"]["exception"].get("description", "?"))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        self.events.append(method)
        return message

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        self.sending.write(json.dumps(message).encode() + b"\0")
        self.sending.flush()
        while (answer := self.receive()).get("id") != self.count:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def open(self, path, **state):
        # The part before # is new each time, so that the page is loaded again.
        self.events.clear()
        self.call("Page.navigate", url=f"{path.as_uri()}?{self.count}#" + "&".join(f"{key}={value}" for key, value in state.items()))
        while "Page.loadEventFired" not in self.events:
            self.receive()
        self.get("new Promise(done => { const each = () => document.getElementById('stage') ? done() : setTimeout(each, 5); each(); })")

    def get(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']['exception']['description']}")
        return result["result"].get("value")

    def texts(self, selector, what="textContent"):
        return self.get(f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.{what})")

    def press(self, selector, *keys, **then):
        self.get(f"document.querySelector({json.dumps(selector)}).focus()")
        for key in keys:
            for kind in ("rawKeyDown", "keyUp"):
                code = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36, "End": 35, "Enter": 13, "Escape": 27,
                        "Backspace": 8}[key]
                text = {"text": "\r"} if (key, kind) == ("Enter", "rawKeyDown") else {}  # a button reacts to the letter, not the key
                kind = "keyDown" if text else kind
                self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)
        self.at(**then)

    def pointer(self, selector, x, y, *kinds):
        """Pointer events at a place within an element, given as shares of its width and height."""
        script = f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{ block: 'center' }});"
        box = self.get(script + "const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
        for kind in kinds or ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0] + x * box[2], y=box[1] + y * box[3], button="left", buttons=1, clickCount=1)

    def click(self, selector):
        self.get(f"document.querySelector({json.dumps(selector)}).click()")

    def address(self):
        return dict(pair.split("=") for pair in self.get("location.hash.slice(1)").split("&"))

    def at(self, **places):
        """The address says these; None: nothing of it."""
        address = self.address() if places else {}
        assert all(address.get(key) == (value if value is None else str(value)) for key, value in places.items()), f"{address}: {places} expected"
