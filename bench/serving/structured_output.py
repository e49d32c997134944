#!/usr/bin/env python3
"""What a schema costs: the same 64 streams with and without one, in turn.

usage: bench/serving/structured_output.py ATOM CHECKPOINT [--rounds 5] [--output-len 64]
                                           [--slow REGEX] [--extra-server-flags ...]

Prints the medians of the ratios, with a schema over without: throughput, the 99th percentile of the
time between tokens, and the CPU time that server and engine take, which others on the machine disturb
least; and what the median time between tokens is longer, which is a step's critical path. --slow: 63
streams without a schema beside one that has to follow an expression whose masks take long, over the
63 alone.

CHECKPOINT may be a config.json with a tokenizer, served with --extra-server-flags --load-dummy random.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
from server_process import ServerProcess  # noqa: E402

STREAMS = 64
# Long enough for any output length; its parts are what schemas of real requests are made of.
SCHEMA = {"type": "array", "minItems": 300, "items": {
    "type": "object", "required": ["name", "n", "ok", "tags"], "properties": {
        "name": {"type": "string"}, "n": {"type": "integer"}, "ok": {"type": "boolean"},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}}}}}


def cpu_seconds(server):
    """Of the server and the engine so far."""
    total = 0
    for pid in (server.process.pid, *server.engine_pids()):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def load(arguments, server, folder, streams, body):
    result = pathlib.Path(folder) / "result.json"
    begin = cpu_seconds(server)
    subprocess.run(
        [arguments.atom, "bench", "serve", "--base-url", server.url, "--no-progress", "--tokenizer",
         arguments.checkpoint, "--input-len", "16", "--output-len", str(arguments.output_len),
         # Of spread lengths: streams that all begin and end together would have a 99th percentile
         # that tells in how many steps their prompts happened to be computed.
         "--range-ratio", "0.5", "--num-prompts", str(8 * streams), "--max-concurrency", str(streams),
         "--extra-body", json.dumps({"ignore_eos": True, "temperature": 1, **body}),
         "--save-result", str(result)], check=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    figures = json.loads(result.read_text())
    assert figures["failed"] == 0, figures
    return (figures["output_throughput"], figures["p99_itl_ms"], cpu_seconds(server) - begin,
            figures["median_itl_ms"])


class SlowNeighbor(threading.Thread):
    """One stream after the other with a slow expression, until stop()."""

    def __init__(self, server, pattern):
        super().__init__(daemon=True)
        self.server, self.pattern, self.stopped = server, pattern, threading.Event()

    def run(self):
        while not self.stopped.is_set():
            self.server.post("/v1/completions", {"prompt": "tar", "regex": self.pattern,
                                                 "max_tokens": 32, "temperature": 1})

    def stop(self):
        self.stopped.set()
        self.join()


def compare(arguments, server, folder):
    """(throughput, 99th percentile, CPU time) of each round: with over without; and how much longer
    the median time between tokens is, in us."""
    ratios = []
    for i in range(arguments.rounds + 1):
        streams = STREAMS - 1 if arguments.slow else STREAMS
        plain = load(arguments, server, folder, streams, {})
        if arguments.slow:
            neighbor = SlowNeighbor(server, arguments.slow)
            neighbor.start()
            other = load(arguments, server, folder, streams, {})
            neighbor.stop()
        else:
            other = load(arguments, server, folder, streams, {"json_schema": SCHEMA})
        if i > 0:  # the first round warms up and compiles
            ratios.append([*(with_one / without for with_one, without in zip(other[:3], plain)),
                           (other[3] - plain[3]) * 1e3])
            print(", ".join(
                f"{name} {rate:.0f} tok/s, {median:.3f} and {tail:.2f} ms, {cpu:.2f} s of CPU"
                for name, (rate, tail, cpu, median) in (("without", plain), ("with", other))),
                  flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output-len", type=int, default=64)
    parser.add_argument("--slow")
    parser.add_argument("--extra-server-flags", nargs=argparse.REMAINDER, default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, \
            ServerProcess(arguments.atom, arguments.checkpoint, "--max-num-seqs", STREAMS,
                          *arguments.extra_server_flags) as server:
        throughput, tail, cpu, longer = map(
            statistics.median, zip(*compare(arguments, server, folder)))
    print(f"throughput {throughput:.3f}, 99th percentile between tokens {tail:.2f}, CPU time "
          f"{cpu:.3f}, median between tokens {longer:+.0f} us: medians of {arguments.rounds} rounds")


if __name__ == "__main__":
    main()
