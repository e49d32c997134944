#!/usr/bin/env python3
"""Starts atom serve, kills its engine's process under a load of streams, and says when the server
noticed, when every stream had ended, and when it served again beside what a start takes.
usage: tools/kill_ranks.py ATOM CHECKPOINT PORT [FLAGS of atom serve]..."""

import http.client
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

NUM_STREAMS = 32
START_SECONDS = 120
SERVED_AGAIN_SECONDS = 5  # beside a start


def ask(port, path, timeout=2):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def wait_for(port, is_ready, seconds):
    begin = time.monotonic()
    while (ask(port, "/readyz") == 200) != is_ready:
        if time.monotonic() - begin > seconds:
            sys.exit(f"error: not {'ready' if is_ready else 'unready'} within {seconds} s")
        time.sleep(0.005)
    return time.monotonic() - begin


def engines(pid):
    tasks = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for path in tasks for child in path.read_text().split()]


class Stream(threading.Thread):
    """An answer of many tokens; notes when it ended and how many events had come."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.events, self.ended, self.failed = port, 0, None, False

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = {"prompt": "Once upon a time", "max_tokens": 1900, "ignore_eos": True,
                "stream": True}
        try:
            connection.request("POST", "/v1/completions", json.dumps(body),
                               {"Content-Type": "application/json"})
            for line in connection.getresponse():
                self.events += line.startswith(b"data:")
                self.failed |= b'"error"' in line
        except (OSError, http.client.HTTPException):
            self.failed = True
        self.ended = time.monotonic()


def main():
    if len(sys.argv) < 4 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        sys.exit(0 if sys.argv[1:2] in (["-h"], ["--help"]) else 2)
    atom, checkpoint, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    server = subprocess.Popen(
        [atom, "serve", checkpoint, "--port", str(port), *sys.argv[4:]], stdin=subprocess.DEVNULL)
    try:
        start = wait_for(port, True, START_SECONDS)
        streams = [Stream(port) for _ in range(NUM_STREAMS)]
        for stream in streams:
            stream.start()
        while min(stream.events for stream in streams) < 5:
            if any(stream.ended for stream in streams):
                sys.exit("error: a stream ended before anything was killed")
            time.sleep(0.005)
        killed = time.monotonic()
        os.kill(engines(server.pid)[0], signal.SIGKILL)
        noticed = wait_for(port, False, 10)
        for stream in streams:
            stream.join(20)
        if any(stream.ended is None or not stream.failed for stream in streams):
            sys.exit("error: a stream went on, or ended without an error")
        ended = max(stream.ended for stream in streams) - killed
        wait_for(port, True, START_SECONDS)
        again = time.monotonic() - killed
        after = Stream(port)
        after.start()
        while after.events < 5:
            if after.ended:
                sys.exit("error: what came back does not answer")
            time.sleep(0.005)
        met = noticed <= 1 and again <= start + SERVED_AGAIN_SECONDS
        print(f"kill: noticed after {noticed:.2f} s, {NUM_STREAMS} streams ended after "
              f"{ended:.2f} s, served again after {again:.1f} s (a start takes {start:.1f} s), "
              f"bars 1 s and a start + {SERVED_AGAIN_SECONDS} s: {'met' if met else 'missed'}")
    finally:
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
