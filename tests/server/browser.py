"""Chromium without a window, driven through the pipe of its DevTools protocol."""
import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
import time

TIMEOUT = 60  # seconds; a busy machine is slow

KEYS = {"Enter": (13, "\r"), "Tab": (9, ""), "Escape": (27, ""), "ArrowLeft": (37, ""),
        "ArrowUp": (38, ""), "ArrowRight": (39, ""), " ": (32, " ")}

# Tells of what the page's policy forbids, beside what the browser's log says.
WATCH_POLICY = """
window.violations = [];
addEventListener("securitypolicyviolation",
                 (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


class Browser:
    """One page of one browser until the end of a `with` block."""

    def __init__(self, chromium):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.to_browser = os.pipe()
        self.from_browser, from_browser = os.pipe()

        def give_pipes():
            # Through numbers that none of the four has.
            os.dup2(to_browser, 200)
            os.dup2(from_browser, 201)
            os.dup2(200, 3)
            os.dup2(201, 4)

        self.process = subprocess.Popen(
            [chromium, "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-background-networking", "--disable-component-update",
             "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=give_pipes)
        os.close(to_browser)
        os.close(from_browser)
        self.next_id = 0
        self.session = None
        self.answers = {}
        self.events = []
        threading.Thread(target=self._read, daemon=True).start()
        self._attach()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to_browser)
        self.folder.cleanup()

    def _read(self):
        buffer = b""
        while chunk := os.read(self.from_browser, 1 << 16):
            *messages, buffer = (buffer + chunk).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers[message["id"]].put(message)
                else:
                    self.events.append((message["method"], message["params"]))

    def call(self, method, **parameters):
        self.next_id += 1
        number = self.next_id
        answer = self.answers[number] = queue.Queue()
        message = {"id": number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to_browser, data):]
        reply = answer.get(timeout=TIMEOUT)
        del self.answers[number]
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']}")
        return reply["result"]

    def _attach(self):
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH_POLICY)
        self.resize(1000, 760)

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def evaluate(self, expression):
        """The value of an expression, awaited when it is a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, timeout=TIMEOUT):
        """The value of an expression once it is true."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            try:
                if value := self.evaluate(expression):
                    return value
            except RuntimeError as error:
                if "context" not in str(error):  # of a page that is being left
                    raise
            time.sleep(0.02)
        raise TimeoutError(f"{expression} is not true: {self.evaluate('document.body.innerText')}")

    def text(self, selector):
        return self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText")

    def press(self, key, **modifiers):
        code, text = KEYS[key]
        bits = 8 if modifiers.get("shift") else 0
        event = {"key": key, "code": "Space" if key == " " else key,
                 "windowsVirtualKeyCode": code, "modifiers": bits}
        if text:
            self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        else:
            self.call("Input.dispatchKeyEvent", type="rawKeyDown", **event)
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def write(self, text):
        self.call("Input.insertText", text=text)

    def tab_to(self, condition):
        """Moves the focus by the Tab key until `condition` holds for the element `focus`."""
        for _ in range(80):
            if self.evaluate(f"((focus) => {condition})(document.activeElement)"):
                return
            self.press("Tab")
        raise AssertionError(f"the Tab key never comes to where {condition}")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def requests(self):
        """The addresses that the page has asked for."""
        return [parameters["request"]["url"] for method, parameters in list(self.events)
                if method == "Network.requestWillBeSent"]

    def complaints(self):
        """What the page did that it must not: broken policy, uncaught errors, warnings."""
        result = list(self.evaluate("window.violations"))
        for method, parameters in list(self.events):
            if method == "Runtime.exceptionThrown":
                result.append(parameters["exceptionDetails"]["exception"]["description"])
            elif method == "Log.entryAdded" and parameters["entry"]["source"] != "network":
                result.append(parameters["entry"]["text"])
            elif method == "Runtime.consoleAPICalled":
                result.append(str(parameters["args"]))
        return result
