#!/usr/bin/env python3
"""Every golden case over HTTP, in float32: log-probabilities of the prompts and the answers by the
golden logits, the answers by the golden tokens. The cases have no tokenizer: prompts are token IDs.

usage: tests/server/golden_models_test.py ATOM SOURCE_FOLDER WRITE_CHECKPOINT [unittest arguments]
"""
import concurrent.futures
import contextlib
import json
import math
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

from server_process import ServerProcess

ATOM = sys.argv[1]
WRITE_CHECKPOINT = sys.argv[3]
CASES = pathlib.Path(os.environ.get("ATOM_GOLDEN_DIR",
                                    pathlib.Path(sys.argv[2]) / "tests" / "data" / "golden"))

# As tests/data/golden/README.md has them.
FLOAT32_BOUND = 1e-4
DECIDED_MARGIN = 1e-3
NUM_LOGPROBS = 64  # the most that a request may ask for

FLAGS = ["--dtype", "float32", "--skip-tokenizer-init", "--emulate-quantized-activations=false",
         "--max-logprobs", NUM_LOGPROBS, "--kv-cache-memory", "64M",
         "--max-num-batched-tokens", "64"]


class GoldenFile:
    def __init__(self, path):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        self.header = json.loads(data[8:8 + size])
        self.data = data[8 + size:]

    def values(self, name, letter):
        begin, end = self.header[name]["data_offsets"]
        return struct.unpack(f"<{(end - begin) // 4}{letter}", self.data[begin:end])

    def ints(self, name):
        return list(self.values(name, "i"))

    def rows(self, name):
        columns = self.header[name]["shape"][1]
        values = self.values(name, "f")
        return [values[i:i + columns] for i in range(0, len(values), columns)]


class Prompt:
    def __init__(self, golden, k):
        prefix = f"prompt.{k}."
        self.ids = golden.ints(prefix + "ids")
        self.rows = dict(zip(golden.ints(prefix + "positions"), golden.rows(prefix + "logits")))
        self.greedy = golden.ints(prefix + "greedy")
        self.margins = golden.values(prefix + "greedy_margins", "f")

    def request(self):
        return {"prompt": self.ids, "temperature": 0, "max_tokens": len(self.greedy),
                "ignore_eos": True, "return_token_ids": True, "logprobs": NUM_LOGPROBS,
                "prompt_logprobs": NUM_LOGPROBS}


def all_cases():
    return [case for case in sorted(CASES.iterdir()) if (case / "golden.json").exists()]


def prompts_of(case):
    golden = GoldenFile(case / "golden.safetensors")
    count = len(json.loads((case / "golden.json").read_text())["prompts"])
    return [Prompt(golden, k) for k in range(count)]


@contextlib.contextmanager
def written(case):
    """The folder of the case's checkpoint, for a while."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([WRITE_CHECKPOINT, case, folder], check=True)
        yield folder


def log_normalizer(logits):
    largest = max(logits)
    return largest + math.log(sum(math.exp(logit - largest) for logit in logits))


def logprobs_by_position(prompt, body):
    """{position: {token: logprob of the token that follows the position}}."""
    choice = body["choices"][0]
    by_position = {}
    for i, entries in enumerate(choice.get("prompt_logprobs", body.get("prompt_logprobs"))):
        if i > 0:
            by_position[i - 1] = {int(token): entry["logprob"] for token, entry in entries.items()}
    first = choice["logprobs"]["top_logprobs"][0]
    by_position[len(prompt.ids) - 1] = {int(name.removeprefix("token_id:")): value
                                        for name, value in first.items()}
    return by_position


class GoldenChecks(unittest.TestCase):
    def check_logprobs(self, prompt, body):
        ours = logprobs_by_position(prompt, body)
        self.assertEqual(sorted(ours), list(range(len(prompt.ids))))
        difference = norm = 0.0
        for position, logits in prompt.rows.items():
            entries = ours[position]
            self.assertGreaterEqual(len(entries), NUM_LOGPROBS)
            best = sorted(logits, reverse=True)[NUM_LOGPROBS - 1]
            normalizer = log_normalizer(logits)
            for token, logprob in entries.items():
                difference += (logprob - (logits[token] - normalizer)) ** 2
            norm += sum(logits[token] ** 2 for token in entries)
            top = sorted(entries, key=entries.get, reverse=True)[:NUM_LOGPROBS]
            self.assertGreater(min(logits[token] for token in top), best - DECIDED_MARGIN)
        self.assertLessEqual(math.sqrt(difference / norm), FLOAT32_BOUND)

    def check_answer(self, prompt, body):
        answer = body["choices"][0]["token_ids"]
        self.assertEqual(len(answer), len(prompt.greedy))
        for own, golden, margin in zip(answer, prompt.greedy, prompt.margins):
            if own != golden:
                self.assertLessEqual(margin, DECIDED_MARGIN)
                return

    def check_all(self, server, prompts):
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as threads:
            answers = list(threads.map(
                lambda prompt: server.post("/v1/completions", prompt.request()), prompts))
        for k, (prompt, (status, _, body)) in enumerate(zip(prompts, answers)):
            with self.subTest(prompt=k):
                self.assertEqual(status, 200, body)
                self.check_logprobs(prompt, body)
                self.check_answer(prompt, body)


class GoldenModels(GoldenChecks):
    def check_case(self, case):
        with written(case) as folder, ServerProcess(ATOM, folder, *FLAGS) as server:
            self.check_all(server, prompts_of(case))


def add_case(case):
    name = "test_" + case.name.replace("-", "_").replace(".", "_")
    setattr(GoldenModels, name, lambda self: self.check_case(case))


for golden_case in all_cases():
    add_case(golden_case)

if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
