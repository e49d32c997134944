#!/usr/bin/env python3
"""The golden answers of the demo model over HTTP, token for token.

usage: tests/server/golden_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import concurrent.futures
import pathlib
import sys
import unittest

from server_process import ServerProcess

sys.path.append(str(pathlib.Path(sys.argv[2]) / "tests" / "support"))
from golden_answers import machine_cases  # noqa: E402  (its folder is known only now)

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"


class GoldenAnswers:
    dtype = ""

    @classmethod
    def setUpClass(cls):
        cls.cases = machine_cases(ATOM, MODEL, cls.dtype)
        cls.server = ServerProcess(ATOM, MODEL, "--dtype", cls.dtype)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def request(self, case):
        return {"messages": [{"role": "user", "content": case["question"]}], "temperature": 0,
                "max_tokens": 160, "return_token_ids": True}

    def check(self, case, prompt_ids, token_ids, text):
        self.assertEqual(prompt_ids, case["prompt_ids"])
        self.assertEqual(token_ids, case["output_ids"])
        self.assertEqual(text, case["text"])

    def whole(self, case):
        status, _, body = self.server.post("/v1/chat/completions", self.request(case))
        self.assertEqual(status, 200, body)
        choice = body["choices"][0]
        self.check(case, body["prompt_token_ids"], choice["token_ids"],
                   choice["message"]["content"])
        self.assertEqual(body["usage"]["prompt_tokens"], len(case["prompt_ids"]))
        self.assertEqual(body["usage"]["completion_tokens"], len(case["output_ids"]))

    def streamed(self, case):
        events = self.server.events("/v1/chat/completions", self.request(case))
        choices = [event["choices"][0] for event in events]
        self.check(case, events[0]["prompt_token_ids"],
                   [token for choice in choices for token in choice["token_ids"]],
                   "".join(choice["delta"].get("content", "") for choice in choices))

    def completion(self, case):
        status, _, body = self.server.post("/v1/completions", {
            "prompt": case["prompt_ids"], "temperature": 0, "max_tokens": 160,
            "return_token_ids": True})
        self.assertEqual(status, 200, body)
        choice = body["choices"][0]
        self.check(case, choice["prompt_token_ids"], choice["token_ids"], choice["text"])

    def test_alone(self):
        for case in self.cases:
            for ask in (self.whole, self.streamed, self.completion):
                with self.subTest(question=case["question"], ask=ask.__name__):
                    ask(case)

    def test_together(self):
        for ask in (self.whole, self.streamed, self.completion):
            with concurrent.futures.ThreadPoolExecutor(len(self.cases)) as pool:
                list(pool.map(ask, self.cases))


class Float32(GoldenAnswers, unittest.TestCase):
    dtype = "float32"


class BFloat16(GoldenAnswers, unittest.TestCase):
    dtype = "bfloat16"


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
