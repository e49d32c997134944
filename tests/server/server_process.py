"""atom serve as a child of a test."""
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

START_TIMEOUT = 300  # seconds; sanitizer builds on a busy machine are slow


class ServerProcess:
    """Serves a checkpoint on a free port until the end of a `with` block."""

    def __init__(self, atom, checkpoint, *flags, env=None):
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        self.process = subprocess.Popen(
            [atom, "serve", str(checkpoint), "--port", "0", *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, **(env or {})})
        try:
            self.url = self._wait_for_url()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        self.host, port = re.match(r"https?://(.+):(\d+)$", self.url).groups()
        self.port = int(port)

    def output(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def _wait_for_url(self):
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            match = re.search(r"serving .* at (https?://[^\s\"]+)", self.output())
            if match:
                return match[1]
            if self.process.poll() is not None:
                raise RuntimeError(f"atom serve ended: {self.output()}")
            time.sleep(0.01)
        raise RuntimeError(f"atom serve did not start: {self.output()}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, timeout=60):
        """SIGTERM, as an operator does; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()

    def engine_pids(self):
        """The processes of the engine: children of the server."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for path in children for pid in path.read_text().split()]

    def request(self, method, path, body=None, headers=None):
        """One request on its own connection: (status, headers, parsed JSON or text)."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=START_TIMEOUT)
        try:
            data = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
            connection.request(method, path, data, headers or {})
            response = connection.getresponse()
            text = response.read()
            is_json = response.headers.get_content_type() == "application/json"
            return (response.status, response.headers,
                    json.loads(text) if is_json and text else text.decode())
        finally:
            connection.close()

    def post(self, path, body, headers=None):
        return self.request("POST", path, body, headers)

    def events(self, path, body):
        """The events of a streamed answer, as parsed JSON; fails unless [DONE] comes last."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=START_TIMEOUT)
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {response.read().decode()}")
            lines = [line.decode().rstrip("\n") for line in response]
        finally:
            connection.close()
        data = [line[len("data: "):] for line in lines if line.startswith("data: ")]
        assert data and data[-1] == "[DONE]", data[-3:]
        return [json.loads(event) for event in data[:-1]]
