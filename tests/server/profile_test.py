#!/usr/bin/env python3
"""Profiles of a server: /start_profile, requests, /stop_profile, and a file that is a chrome trace.

usage: tests/server/profile_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest
import unittest.mock

from server_process import ServerProcess

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
ANY = unittest.mock.ANY
BODY = {"prompt": "How do I use git commit?", "max_tokens": 12, "ignore_eos": True, "temperature": 0}


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "made" / "by atom"

    def serve(self, *flags):
        server = ServerProcess(ATOM, MODEL, "--max-model-len", 128, *flags)
        self.addCleanup(server.stop)
        return server

    def ask(self, server, path, status, **request):
        got, _, answer = server.post(path, "", **request)
        self.assertEqual(got, status, answer)
        return answer

    def complete(self, server, number=1):
        with concurrent.futures.ThreadPoolExecutor(number) as pool:
            for status, _, answer in pool.map(
                    lambda _: server.post("/v1/completions", BODY), range(number)):
                self.assertEqual(status, 200, answer)

    def test_off_by_default(self):
        server = self.serve()
        for path in ("/start_profile", "/stop_profile"):
            error = self.ask(server, path, 404)["error"]
            self.assertEqual(error["code"], "unknown_path")
            self.assertNotIn("profile?", error["message"])
            self.assertNotIn(path, server.request("GET", "/openapi.json")[2]["paths"])

    def test_steps_between_start_and_stop(self):
        server = self.serve("--profile-dir", self.folder)
        self.assertIn("/start_profile", server.request("GET", "/openapi.json")[2]["paths"])
        self.assertEqual(server.request("GET", "/start_profile")[0], 405)
        self.complete(server)
        files = []
        for number in (1, 4):
            self.assertEqual(self.ask(server, "/start_profile", 200), {"status": "started"})
            self.complete(server, number)
            answer = self.ask(server, "/stop_profile", 200)
            self.assertEqual((answer["status"], answer["dropped_spans"]), ("stopped", 0))
            files.append(answer["file"])
            self.check_file(answer, number)
        self.assertEqual(sorted(map(str, self.folder.iterdir())), sorted(files))
        self.assertEqual(server.stop(), 0)

    def check_file(self, answer, number):
        path = pathlib.Path(answer["file"])
        self.assertRegex(path.name, r"^atom-\d{8}T\d{6}\.\d{3}Z-rank0\.json$")
        trace = json.loads(path.read_text())
        names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"]
                 if event["ph"] == "M" and event["name"] == "thread_name"}
        self.assertTrue({"engine core", "runner", "operators"} <= set(names.values()))
        spans = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        self.assertEqual(len(spans), answer["spans"])
        self.assertEqual(trace["otherData"]["spans"], str(answer["spans"]))
        by_name = {}
        for span in spans:
            self.assertGreaterEqual(min(span["ts"], span["dur"]), 0)
            by_name.setdefault((names[span["tid"]], span["name"]), []).append(span)
        steps = [span for name in ("prefill", "decode", "mixed")
                 for span in by_name.get(("runner", name), [])]
        # Every token of an answer but the first, which is the prompt's step.
        self.assertEqual(sum(step["args"]["tokens"] for step in by_name[("runner", "decode")]),
                         BODY["max_tokens"] - 1 if number == 1 else ANY)
        for name in ("schedule", "postprocess", "send"):
            self.assertTrue(by_name[("engine core", name)], name)
        for name in ("build inputs", "execute", "sample", "collect"):
            self.assertTrue(by_name[("runner", name)], name)
        layers = json.loads((MODEL / "config.json").read_text())["num_hidden_layers"]
        self.assertEqual(len(by_name[("operators", "attention")]), layers * len(steps))
        self.assertIn("bytes", by_name[("operators", "linear")][0]["args"])
        # Operators lie within their steps.
        ends = sorted((step["ts"], step["ts"] + step["dur"]) for step in steps)
        for span in by_name[("operators", "linear")]:
            self.assertTrue(any(begin - 0.01 <= span["ts"] and
                                span["ts"] + span["dur"] <= end + 0.01 for begin, end in ends))

    def test_wrong_turns(self):
        server = self.serve("--profile-dir", self.folder)
        self.assertIn("start one first", self.ask(server, "/stop_profile", 400)["error"]["message"])
        self.ask(server, "/start_profile", 200)
        self.assertIn("already", self.ask(server, "/start_profile", 400)["error"]["message"])
        self.complete(server)
        self.ask(server, "/stop_profile", 200)
        self.ask(server, "/stop_profile", 400)

    def test_needs_the_key(self):
        server = self.serve("--profile-dir", self.folder, "--api-key", "secret")
        self.ask(server, "/start_profile", 401)
        headers = {"Authorization": "Bearer secret"}
        self.ask(server, "/start_profile", 200, headers=headers)
        self.ask(server, "/stop_profile", 401)
        self.ask(server, "/stop_profile", 200, headers=headers)

    def test_a_failing_disk_harms_nothing_else(self):
        server = self.serve("--profile-dir", self.folder)
        self.ask(server, "/start_profile", 200)
        shutil.rmtree(self.folder)
        self.folder.write_text("no folder any more")
        self.complete(server)
        error = self.ask(server, "/stop_profile", 500)["error"]
        self.assertIn("cannot be written", error["message"])
        self.assertIn("cannot be made", self.ask(server, "/start_profile", 500)["error"]["message"])
        self.complete(server)
        self.folder.unlink()
        self.ask(server, "/start_profile", 200)
        self.complete(server)
        self.check_file(self.ask(server, "/stop_profile", 200), 1)

    def test_an_engine_that_dies_loses_its_profile(self):
        server = self.serve("--profile-dir", self.folder)
        self.ask(server, "/start_profile", 200)
        os.kill(server.engine_pids()[0], signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not re.search("serves again", server.output()) and time.monotonic() < deadline:
            time.sleep(0.01)
        error = self.ask(server, "/stop_profile", 500)["error"]
        self.assertIn("the profile is lost", error["message"])
        self.ask(server, "/stop_profile", 400)
        self.ask(server, "/start_profile", 200)
        self.complete(server)
        self.check_file(self.ask(server, "/stop_profile", 200), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
