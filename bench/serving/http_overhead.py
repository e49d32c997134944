#!/usr/bin/env python3
"""What HTTP costs: the same made-up requests offline and through the server, in turn.

usage: bench/serving/http_overhead.py ATOM CHECKPOINT [--rounds N] [--output-len N]
                                       [--streams N...]

Prints, for 1, 16 and 64 streams, the median throughput of both and their ratio, and the median time
to the first token of a short prompt. Engine, server and load generator share the machine, as they
do on a laptop.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
from server_process import ServerProcess  # noqa: E402

INPUT_LEN = 32


def run(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True,
                          text=True).stdout


def offline(arguments, streams, prompts, folder):
    result = pathlib.Path(folder) / "offline.json"
    mode = "latency" if streams == 1 else "throughput"
    size = ["--batch-size", 1] if streams == 1 else ["--num-prompts", prompts]
    run(arguments.atom, "bench", mode, arguments.checkpoint, *size, *arguments.engine_flags,
        "--input-len", INPUT_LEN, "--output-len", arguments.output_len, "--max-num-seqs", streams,
        "--num-iters", 3, "--warmup", 1, "--max-model-len", arguments.max_model_len,
        "--output-json", result)
    return json.loads(result.read_text())["results"][0]


def online(arguments, streams, prompts, folder):
    result = pathlib.Path(folder) / "online.json"
    with ServerProcess(arguments.atom, arguments.checkpoint, *arguments.engine_flags,
                       "--max-num-seqs", streams, "--no-enable-prefix-caching",
                       "--max-model-len", arguments.max_model_len) as server:
        run(arguments.atom, "bench", "serve", "--base-url", server.url, "--num-prompts", prompts,
            "--num-warmups", streams, "--max-concurrency", streams, "--input-len", INPUT_LEN,
            "--output-len", arguments.output_len, *arguments.client_flags, "--no-progress", "--save-result", result)
    return json.loads(result.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output-len", type=int, default=256)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 16, 64])
    arguments = parser.parse_args()
    # A folder of nothing but a config.json is served with made-up weights and without text.
    if (pathlib.Path(arguments.checkpoint) / "tokenizer.json").exists():
        arguments.engine_flags = ["--no-skip-tokenizer-init"]
        arguments.client_flags = ["--tokenizer", arguments.checkpoint]
    else:
        arguments.engine_flags = ["--skip-tokenizer-init", "--load-dummy", "random"]
        arguments.client_flags = ["--vocab-size", 1000]
    arguments.max_model_len = INPUT_LEN + arguments.output_len
    with tempfile.TemporaryDirectory() as folder:
        for streams in arguments.streams:
            prompts = max(8, 4 * streams)
            pairs = []
            for _ in range(arguments.rounds):
                pairs.append((offline(arguments, streams, prompts, folder),
                              online(arguments, streams, prompts, folder)))
            report(streams, pairs)


def report(streams, pairs):
    throughput = [(before["output_tokens_per_second"], after["output_throughput"])
                  for before, after in pairs]
    ratio = statistics.median(after / before for before, after in throughput)
    print(f"{streams:3} streams: offline {statistics.median(a for a, _ in throughput):8.0f} tok/s, "
          f"HTTP {statistics.median(b for _, b in throughput):8.0f} tok/s, "
          f"median of the ratios {ratio:.3f}", end="")
    if streams == 1:
        first = [(before["time_to_first_token"] * 1e3, after["median_ttft_ms"]) for before, after in pairs]
        later = statistics.median(after - before for before, after in first)
        print(f"; first token {statistics.median(a for a, _ in first):.2f} ms offline, "
              f"{statistics.median(b for _, b in first):.2f} ms over HTTP, {later:+.2f} ms", end="")
    print(flush=True)


if __name__ == "__main__":
    main()
