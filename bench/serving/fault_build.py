"""A build of atom that faults are looked for in, and what is seen of its servers."""
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
from server_process import ServerProcess  # noqa: E402

MIB = 1 << 20


class Build:
    def __init__(self, atom, checkpoint):
        self.atom, self.checkpoint = atom, pathlib.Path(checkpoint).resolve()
        self.help = subprocess.run([atom, "serve", "--help"], capture_output=True, text=True,
                                   check=True).stdout

    def has(self, option):
        return f" {option}" in self.help or f"]{option.lstrip('-')} " in self.help

    def known(self, flags):
        """Without the options, and their values, that this build does not have."""
        kept, skip = [], False
        for flag in map(str, flags):
            if flag.startswith("--"):
                skip = not self.has(flag)
            if not skip:
                kept.append(flag)
        return kept

    @contextlib.contextmanager
    def serve(self, *flags, env=None, checkpoint=None, command=None):
        """A server, which is killed at the end: one that was harmed may not end otherwise."""
        server = ServerProcess(command or self.atom, checkpoint or self.checkpoint,
                               *self.known(flags), env=env)
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()
            server.log.close()

    def run(self, *arguments, env=None, timeout=60):
        return subprocess.run([self.atom, *map(str, arguments)], capture_output=True, text=True,
                              timeout=timeout, env={**os.environ, **(env or {})}, check=False)


def cpu_seconds(server):
    """Of the front end."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(server, field="VmRSS"):
    """MiB of the front end."""
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(text.split(field + ":")[1].split()[0]) / 1024


def settled_memory(server, limit, seconds=5):
    deadline = time.monotonic() + seconds
    while memory(server) > limit and time.monotonic() < deadline:
        time.sleep(0.05)
    return memory(server)


def ask(server, path, body=None, headers=None, timeout=30, method="POST"):
    """(status, headers, answer); the status is "no answer" after the timeout, "cut" without one."""
    data = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
    connection = http.client.HTTPConnection(server.host, server.port, timeout=timeout)
    try:
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        text = response.read()
    except TimeoutError:
        return "no answer", {}, {}
    except (OSError, http.client.HTTPException):
        return "cut", {}, {}
    finally:
        connection.close()
    try:
        return response.status, response.headers, json.loads(text)
    except ValueError:
        return response.status, response.headers, text


def begin(server, path, body, length=None):
    """The connection of a request that was sent, or its beginning."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = socket.create_connection((server.host, server.port))
    connection.settimeout(10)
    with contextlib.suppress(OSError):
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                           "Content-Type: application/json\r\n"
                           f"Content-Length: {len(data) if length is None else length}\r\n\r\n"
                           .encode() + data)
    return connection


def seconds_to_end(server, number=signal.SIGTERM, limit=8):
    """Until the process has ended; None if it does not."""
    start = time.monotonic()
    server.process.send_signal(number)
    try:
        server.process.wait(limit)
    except subprocess.TimeoutExpired:
        return None
    return time.monotonic() - start


def error_of(answer):
    return answer.get("error", {}) if isinstance(answer, dict) else {}


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
