#!/usr/bin/env python3
"""atom serve with drafts: the answers of a server without, what /metrics tells of them, the large
batch that does not draft, and what is refused before anything is loaded.

usage: tests/server/speculation_test.py ATOM SOURCE_FOLDER
"""
import concurrent.futures
import pathlib
import re
import subprocess
import sys
import unittest

from server_process import ServerProcess

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
FLAGS = ("--device", "cpu", "--max-model-len", "512", "--max-num-seqs", "8")
DRAFTS = 3
# A text that repeats, so that there is something to look up.
PROMPT = "tar -xf archive.tar\n" * 8


def body(seed, temperature=0.7, **more):
    return {"prompt": PROMPT, "max_tokens": 48, "temperature": temperature, "seed": seed,
            "ignore_eos": True, **more}


def answers(server):
    """Of requests of many kinds at once."""
    bodies = [body(0, 0), body(0, 0, logprobs=2), body(1), body(2, stop=["."]), body(3, n=2),
              body(4, presence_penalty=0.5), body(5, min_tokens=20), body(6, top_p=0.5, top_k=20)]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        got = list(pool.map(lambda request: server.post("/v1/completions", request), bodies))
    assert all(status == 200 for status, _, _ in got), got
    return [[(choice["text"], choice["finish_reason"], choice["logprobs"] and
              choice["logprobs"]["tokens"]) for choice in json["choices"]] for _, _, json in got]


def counters(server):
    """The counters of drafts by name, those of a position as "name[position]"."""
    found = {}
    for line in server.request("GET", "/metrics")[2].splitlines():
        match = re.match(r"vllm:spec_decode_(\w+)_total\{(.*)\} (\S+)$", line)
        if match:
            position = re.search(r'position="(\d+)"', match[2])
            found[match[1] + (f"[{position[1]}]" if position else "")] = float(match[3])
    return found


class Speculation(unittest.TestCase):
    def test_answers_and_metrics(self):
        with ServerProcess(ATOM, MODEL, *FLAGS) as server:
            expected = answers(server)
            self.assertEqual(counters(server).get("num_drafts", 0), 0)
        with ServerProcess(ATOM, MODEL, *FLAGS, "--speculative-config",
                           f'{{"method": "ngram", "num_speculative_tokens": {DRAFTS},'
                           ' "disable_by_batch_size": 8}') as server:
            self.assertEqual(answers(server), expected)
            found = counters(server)
        verifications = found["num_drafts"]
        self.assertGreater(verifications, 20)
        self.assertLessEqual(found["num_draft_tokens"], DRAFTS * verifications)
        by_position = [found[f"num_accepted_tokens_per_pos[{i}]"] for i in range(DRAFTS)]
        self.assertEqual(sum(by_position), found["num_accepted_tokens"])
        self.assertEqual(by_position, sorted(by_position, reverse=True))
        self.assertGreater(by_position[0], 0)

    def test_large_batches_do_not_draft(self):
        said = "more than 1 requests run: nothing is drafted"
        with ServerProcess(ATOM, MODEL, *FLAGS, "--method", "ngram", "--num-speculative-tokens",
                           DRAFTS, "--speculative-disable-by-batch-size", "1") as server:
            server.post("/v1/completions", body(1))
            self.assertNotIn(said, server.output())
            alone = counters(server)["num_drafts"]
            self.assertGreater(alone, 0)
            for _ in range(2):
                answers(server)
            self.assertEqual(server.output().count(said), 1)

    def test_refusals(self):
        for flags, words in {
            ("--method", "mtp"): "no layers for multi-token prediction",
            ("--method", "dspark"): "dspark",
            ("--method", "ngram", "--num-speculative-tokens", "0"): "--num-speculative-tokens",
            ("--method", "ngram", "--num-speculative-tokens", "17"): "--num-speculative-tokens",
            ("--method", "ngram", "--num-speculative-tokens", "-1"): "--num-speculative-tokens",
            ("--method", "eagle3"): "--draft-model",
            ("--method", "eagle3", "--draft-model", "/nowhere"): "/nowhere",
            ("--method", "ngram", "--draft-head-dtype", "fp8"): "--draft-head-dtype",
            ("--spec-decode-acceptance-length", "2"): "--spec-decode-acceptance-length",
            ("--spec-decode-acceptance-rate", "0.5"): "--spec-decode-acceptance-rate",
            ("--forced-acceptance", "2"): "--forced-acceptance",
        }.items():
            with self.subTest(flags=flags):
                result = subprocess.run([ATOM, "serve", MODEL, "--port", "0", *FLAGS, *flags],
                                        capture_output=True, text=True, timeout=60)
                self.assertIn(result.returncode, (1, 2))
                self.assertIn(words, result.stderr)
                self.assertNotIn("loaded ", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
