#!/usr/bin/env python3
"""Serves for a long time at a part of the server's capacity and watches what it holds on to.

usage: bench/serving/soak.py ATOM CHECKPOINT [--minutes 60] [--load 0.8 | --rate R]
                              [--settle-minutes 10] [--schemas]

Measures the capacity, then sends requests of mixed lengths at that part of it, or R a second where
others use the machine, too. Fails when the resident memory of server or engine grows by more than
1 MiB after the settling time, or a file descriptor is left open. --schemas: beside them one answer a
second has to follow one of some schemas, which are compiled once.
"""
import argparse
import itertools
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
import answer_cases  # noqa: E402
from answer_checks import follows  # noqa: E402
from server_process import ServerProcess  # noqa: E402

INTERVAL = 10  # seconds between two looks
MINUTES_PER_LINE = 5
MAX_GROWTH = 1 << 20
WORK = ["--input-len", "uniform:8:128", "--output-len", "uniform:1:192", "--max-concurrency", "64"]


def resident(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096


def descriptors(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def bench(arguments, server, *flags):
    return [arguments.atom, "bench", "serve", "--base-url", server.url, "--no-progress",
            "--tokenizer", arguments.checkpoint, *WORK, *map(str, flags)]


def capacity(arguments, server, folder):
    """Requests per second."""
    result = pathlib.Path(folder) / "capacity.json"
    subprocess.run(bench(arguments, server, "--num-prompts", 1500, "--save-result", result),
                   check=True, stdout=subprocess.DEVNULL)
    return json.loads(result.read_text())["request_throughput"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--settle-minutes", type=float, default=10)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--schemas", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            ServerProcess(arguments.atom, arguments.checkpoint, "--max-model-len", 512,
                          "--kv-cache-memory", "64MiB") as server:
        sys.exit(soak(arguments, server, folder))


class SchemaClient(threading.Thread):
    """One answer a second that has to follow a schema."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.right, self.wrong = server, 0, 0
        self.stopped = threading.Event()

    def stop(self):
        self.stopped.set()
        self.join()

    def run(self):
        for schema in itertools.cycle(list(answer_cases.schemas())[::10]):
            if self.stopped.is_set():
                return
            self.ask(schema)

    def ask(self, schema):
        begin = time.monotonic()
        try:
            status, _, answer = self.server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "What is tar?"}],
                "temperature": 1.5, "max_tokens": 400, "json_schema": schema})
            choice = answer["choices"][0] if status == 200 else {}
            right = choice["finish_reason"] == "length" or follows(
                json.loads(choice["message"]["content"]), schema)
        except (OSError, KeyError, ValueError):
            right = False
        self.right += right
        self.wrong += not right
        self.stopped.wait(max(0, 1 - (time.monotonic() - begin)))


def soak(arguments, server, folder):
    rate = arguments.rate or capacity(arguments, server, folder) * arguments.load
    number = int(rate * arguments.minutes * 60)
    result = pathlib.Path(folder) / "soak.json"
    print(f"{rate:.1f} requests/s for {arguments.minutes:g} minutes", flush=True)
    structured = SchemaClient(server)
    if arguments.schemas:
        structured.start()
    load = subprocess.Popen(bench(arguments, server, "--num-prompts", number, "--request-rate",
                                  rate, "--save-result", result), stdout=subprocess.DEVNULL)
    processes = {"server": server.process.pid, "engine": server.engine_pids()[0]}
    samples = {name: [] for name in processes}
    next_line = 0
    begin = time.monotonic()
    while load.poll() is None:
        minute = (time.monotonic() - begin) / 60
        if minute > arguments.minutes:
            load.send_signal(signal.SIGINT)  # ends the load; what was measured is reported
        for name, pid in processes.items():
            samples[name].append((minute, resident(pid), descriptors(pid)))
        if minute >= next_line:
            print(f"minute {minute:4.1f}: " + ", ".join(
                f"{name} {seen[-1][1] / 2**20:.2f} MiB and {seen[-1][2]} descriptors"
                for name, seen in samples.items()), flush=True)
            next_line += MINUTES_PER_LINE
        time.sleep(INTERVAL)
    figures = json.loads(result.read_text())
    print(f"{figures['completed']} requests completed, {figures['failed']} failed, "
          f"{figures['output_throughput']:.0f} tok/s", flush=True)
    if arguments.schemas:
        structured.stop()
        print(f"{structured.right} answers followed their schema, {structured.wrong} did not")
    time.sleep(2)  # the connections of the load generator close
    failed = figures["failed"] > 0 or structured.wrong > 0 or load.returncode not in (0, 130)
    for name, pid in processes.items():
        settled = [entry for entry in samples[name] if entry[0] >= arguments.settle_minutes]
        growth = max(size for _, size, _ in settled) - settled[0][1]
        before, after = samples[name][0][2], descriptors(pid)
        # The first look may already see connections of the load.
        print(f"{name}: resident {settled[0][1] / 2**20:.2f} MiB after "
              f"{arguments.settle_minutes:g} minutes, at most {growth / 2**20:+.2f} MiB later; "
              f"descriptors {before} at the start, {after} at the end", flush=True)
        failed |= growth > MAX_GROWTH or after > before
    return 1 if failed else 0


if __name__ == "__main__":
    main()
