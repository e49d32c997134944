#!/usr/bin/env python3
"""The demo model's twelve golden answers on a GPU, by atom generate and over HTTP, with recorded
decode steps and without, with the KV cache in the model's type and in FP8. Where there is no GPU,
ATOM_TEST_DEVICE=cpu runs it on the CPU.

usage: tests/gpu/gpu_golden_test.py ATOM SOURCE_FOLDER [BINARIES] [unittest arguments]
"""
import concurrent.futures
import json
import unittest

from gpu_machine import (ATOM, BFLOAT16_CLEAR_MARGIN, DEVICE, ROOT, ServerProcess, atom,
                         golden_cases, unittest_arguments)

MODEL = ROOT / "models" / "tldr-8m"
GOLDEN = {dtype: golden_cases(MODEL, dtype) for dtype in ("float32", "bfloat16")}
# An answer has to be the same where no choice of float32's was closer than this; so in float32 all.
CLEAR_MARGIN = {("float32", "auto"): 0.0, ("bfloat16", "auto"): BFLOAT16_CLEAR_MARGIN,
                ("float32", "fp8"): 1.0, ("bfloat16", "fp8"): 1.0}
MARGINS = {case["question"]: case["min_margin"] for case in GOLDEN["float32"]}
# And moves the mean log-probability of all golden answers' tokens by no more than this.
SCORE_BOUND = 0.02


def flags_of(dtype, cache, graphs):
    flags = ["--device", DEVICE, "--dtype", dtype, "--kv-cache-dtype", cache,
             "--max-model-len", 512, "--kv-cache-memory", "256MiB"]
    return flags if graphs else flags + ["--enable-graphs=false"]


def combinations():
    for dtype in ("float32", "bfloat16"):
        for cache in ("auto", "fp8"):
            for graphs in (True, False):
                yield dtype, cache, graphs


@unittest.skipIf(DEVICE == "", "no GPU")
class Golden(unittest.TestCase):
    def check(self, case, dtype, cache, prompt_ids, token_ids, text):
        self.assertEqual(prompt_ids, case["prompt_ids"])
        if MARGINS[case["question"]] >= CLEAR_MARGIN[dtype, cache]:
            self.assertEqual(token_ids, case["output_ids"])
            self.assertEqual(text, case["text"])

    def in_parallel(self, run):
        """One combination after the other would mostly wait for starts."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = {pool.submit(run, *combination): combination
                       for combination in combinations()}
            for future, combination in futures.items():
                with self.subTest(combination=combination):
                    future.result()

    def generate(self, dtype, cache, graphs):
        cases = GOLDEN[dtype]
        result = atom("generate", MODEL, "--chat", "--json", "--max-tokens", 160,
                      *flags_of(dtype, cache, graphs), "--", *[c["question"] for c in cases])
        self.assertEqual(result.returncode, 0, result.stderr)
        outputs = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(outputs), len(cases))
        for case, output in zip(cases, outputs):
            answer = output["outputs"][0]
            self.check(case, dtype, cache, output["prompt_token_ids"], answer["token_ids"],
                       answer["text"])

    def serve(self, dtype, cache, graphs):
        with ServerProcess(*map(str, (ATOM, MODEL)), *flags_of(dtype, cache, graphs)) as server:
            def ask(case):
                request = {"messages": [{"role": "user", "content": case["question"]}],
                           "temperature": 0, "max_tokens": 160, "return_token_ids": True}
                status, _, body = server.post("/v1/chat/completions", request)
                self.assertEqual(status, 200, body)
                choice = body["choices"][0]
                self.check(case, dtype, cache, body["prompt_token_ids"], choice["token_ids"],
                           choice["message"]["content"])
                events = server.events("/v1/chat/completions", request)
                choices = [event["choices"][0] for event in events]
                self.check(case, dtype, cache, events[0]["prompt_token_ids"],
                           [token for choice in choices for token in choice["token_ids"]],
                           "".join(choice["delta"].get("content", "") for choice in choices))
            for case in GOLDEN[dtype]:
                ask(case)
            with concurrent.futures.ThreadPoolExecutor(12) as pool:
                list(pool.map(ask, GOLDEN[dtype]))
            self.assertEqual(server.stop(), 0)

    def score(self, dtype, cache):
        """Mean log-probability of the golden answers' tokens."""
        cases = GOLDEN[dtype]
        result = atom("generate", MODEL, "--json", "--max-tokens", 1, "--prompt-logprobs", 0,
                      *flags_of(dtype, cache, True), "--skip-tokenizer-init", "--",
                      *[json.dumps(c["prompt_ids"] + c["output_ids"]) for c in cases])
        self.assertEqual(result.returncode, 0, result.stderr)
        scores = []
        for case, line in zip(cases, result.stdout.splitlines()):
            entries = json.loads(line)["prompt_logprobs"][len(case["prompt_ids"]):]
            scores += [entry["logprob"] for entry in entries]
        return sum(scores) / len(scores)

    def test_generate(self):
        self.in_parallel(self.generate)

    def test_serve(self):
        self.in_parallel(self.serve)

    def test_an_fp8_cache_moves_scores_little(self):
        for dtype in ("float32", "bfloat16"):
            difference = self.score(dtype, "fp8") - self.score(dtype, "auto")
            print(f"{dtype}: an FP8 cache moves the mean log-probability by {difference:.5f}")
            self.assertLessEqual(abs(difference), SCORE_BOUND)


if __name__ == "__main__":
    unittest.main(argv=unittest_arguments())
