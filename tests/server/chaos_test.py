#!/usr/bin/env python3
"""Harms the server in every way a client, an operator or the kernel may, and checks that nobody
else notices.

usage: tests/server/chaos_test.py ATOM SOURCE_FOLDER [--full] [unittest arguments]

Without --full each count is a small part of the real one, which takes about half an hour.
"""
import asyncio
import gc
import json
import os
import pathlib
import random
import re
import signal
import statistics
import sys
import time
import unittest

from server_process import ServerProcess
from stream_client import Stream, StreamCut, stream_text

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
FULL = "--full" in sys.argv
QUESTIONS = [case["prompt_ids"] for case in
             json.loads((MODEL / "golden_text.json").read_text())["bfloat16"]]
# The bounds on times hold for --full on a machine with nothing else to do. Elsewhere, and in
# sanitizer builds, they are this much wider.
SLOWNESS = float(os.environ.get("ATOM_TEST_SLOWNESS", "1" if FULL else "5"))


def count(full):
    return full if FULL else max(1, full // 20)


def canary(index, max_tokens=300):
    return {"prompt": QUESTIONS[index % len(QUESTIONS)], "max_tokens": max_tokens,
            "ignore_eos": True, "temperature": 0.8, "seed": index}


def gauge(server, name):
    text = server.request("GET", "/metrics")[2]
    return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", text, re.M)[1])


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, timeout):
    """Seconds until it held; fails after `timeout`."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout:
            raise AssertionError(f"not within {timeout} s")
        time.sleep(0.001)
    return time.monotonic() - begin


POISON = [
    b"{", b"", b"[]", b"null", b'{"prompt": "x", "prompt": "y"}', b"\xff\xfe", b"[" * 100000,
    b'{"prompt": "\\ud800"}', b'{"prompt": 1e999}', b'{"prompt": "x", "temperature": NaN}',
    b'{"prompt": "x", "temprature": 1}', b'{"prompt": "' + b"tar " * 20000 + b'"}',
    *(json.dumps({"prompt": "x", **wrong}).encode() for wrong in (
        {"max_tokens": -1}, {"max_tokens": 10**9}, {"temperature": -1}, {"top_p": 0},
        {"top_k": -7}, {"n": 0}, {"n": 10**6}, {"logprobs": 999}, {"stop": [""]},
        {"stop_token_ids": [-1]}, {"stop_token_ids": [10**6]}, {"logit_bias": {"a": 1}},
        {"logit_bias": {"999999": 1}}, {"seed": "x"}, {"model": "nobody"}, {"prompt": []},
        {"prompt": [[]]}, {"prompt": [-1]}, {"prompt": [10**6]}, {"suffix": "x"},
        {"best_of": 1, "n": 3}, {"min_tokens": 50, "max_tokens": 5})),
]


class Chaos(unittest.IsolatedAsyncioTestCase):
    maxDiff = None

    async def asyncSetUp(self):
        asyncio.get_running_loop().set_debug(False)  # its warnings are about this test's own waits

    def serve(self, *flags):
        server = ServerProcess(ATOM, MODEL, "--max-model-len", 512, *flags)
        self.addCleanup(server.stop)
        return server

    async def canaries(self, server, number=16):
        return await asyncio.gather(*(stream_text(server, canary(i)) for i in range(number)))

    async def test_poison_beside_canaries(self):
        server = self.serve()
        quiet = await self.canaries(server)
        self.assertTrue(all(error is None and len(text) > 100 for text, error in quiet))
        statuses = []

        async def poison(number):
            for _ in range(number):
                body = random.choice(POISON)
                path = random.choice(["/v1/completions", "/v1/chat/completions", "/tokenize"])
                statuses.append((await asyncio.to_thread(server.post, path, body))[0])

        async def canaries_until(work):
            rounds = 0
            while not work.done() or rounds == 0:
                self.assertEqual(await self.canaries(server), quiet)
                rounds += 1
            return rounds

        work = asyncio.gather(*(poison(count(1000) // 4 + 1) for _ in range(4)))
        rounds = await canaries_until(work)
        await work
        wrong = [status for status in statuses if not 400 <= status < 500]
        # "/tokenize" takes some of the bodies, and a model that is not named is the server's own.
        self.assertEqual([status for status in wrong if status != 200], [])
        self.assertEqual(server.request("GET", "/readyz")[0], 200)
        print(f"poison: {len(statuses)} requests, {len(wrong)} of them fine, beside {rounds} "
              "rounds of 16 canaries, all identical")

    async def test_disconnects(self):
        server = self.serve("--max-num-seqs", 32)
        await self.canaries(server)
        baseline = gauge(server, "vllm:kv_cache_usage_perc")
        number, at_once = count(10000), 64
        gate = asyncio.Semaphore(at_once)

        async def vanish(index):
            async with gate:
                stream = await Stream.open(server, "/v1/completions", canary(index, 450))
                events = stream.events()
                for _ in range(random.randrange(12)):
                    await anext(events)
                await asyncio.sleep(random.random() * 0.01)
                stream.reset() if index % 2 else stream.close()

        begin = time.monotonic()
        await asyncio.gather(*(vanish(index) for index in range(number)))
        seconds = time.monotonic() - begin
        wait_until(lambda: gauge(server, "vllm:num_requests_running") == 0, 5 * SLOWNESS)
        self.assertEqual(gauge(server, "vllm:num_requests_waiting"), 0)
        self.assertLessEqual(gauge(server, "vllm:kv_cache_usage_perc"), baseline)
        delays, polls = [], []
        # A collection of this test's own objects takes longer than what is measured.
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

        def is_gone():
            begin = time.monotonic()
            running = gauge(server, "vllm:num_requests_running")
            polls.append(time.monotonic() - begin)
            return running == 0

        for index in range(count(400)):
            stream = await Stream.open(server, "/v1/completions", canary(index, 450))
            events = stream.events()
            for _ in range(1 + index % 5):
                await anext(events)
            stream.close()
            delays.append(await asyncio.to_thread(wait_until, is_gone, 5 * SLOWNESS))
        self.assertEqual(server.request("GET", "/readyz")[0], 200)
        print(f"disconnects: {number} at random moments in {seconds:.0f} s, KV use back at "
              f"{baseline}; one at a time, seen gone from the engine after "
              f"{max(delays) * 1e3:.1f} ms at most (median {statistics.median(delays) * 1e3:.1f}); "
              f"the look itself took {max(polls) * 1e3:.1f} ms at most")
        self.assertLess(max(delays), 0.06 * SLOWNESS)

    async def test_engine_killed(self):
        server = self.serve()
        quiet = await self.canaries(server, 4)
        noticed, back = [], []
        for index in range(count(100)):
            pids = server.engine_pids()
            self.assertEqual(len(pids), 1, "one engine")
            streams = [await Stream.open(server, "/v1/completions", canary(i, 450))
                       for i in range(16)]
            for stream in streams:
                await anext(stream.events())
            await asyncio.sleep(random.random() * 0.05)
            os.kill(pids[0], signal.SIGKILL)
            killed = time.monotonic()
            # Every stream ends, with an error unless it had come to its end.
            endings = await asyncio.wait_for(
                asyncio.gather(*(self.ending(stream) for stream in streams)), 10 * SLOWNESS)
            errors = [when for when, error in endings if error is not None]
            self.assertGreater(len(errors), 0)
            noticed.append(max(errors) - killed)
            wait_until(lambda: server.request("GET", "/readyz")[0] == 200, 20 * SLOWNESS)
            back.append(time.monotonic() - killed)
            self.assertFalse(is_alive(pids[0]))
        self.assertEqual(await self.canaries(server, 4), quiet)
        engine = server.engine_pids()
        print(f"engine killed {len(back)} times under 16 streams: their errors after "
              f"{max(noticed) * 1e3:.0f} ms at most (median {statistics.median(noticed) * 1e3:.0f})"
              f", serving again after {max(back):.2f} s at most")
        self.assertLess(max(noticed), 0.1 * SLOWNESS)
        self.assertLess(max(back), 2 * SLOWNESS)
        self.assertEqual(gauge(server, "atom:engine_restarts_total"), len(back))
        server.process.kill()
        server.process.wait()
        wait_until(lambda: not any(map(is_alive, engine)), 2 * SLOWNESS)

    async def ending(self, stream):
        """When the stream ended, and its error."""
        error = None
        try:
            async for event in stream.events():
                error = event.get("error", error)
        except StreamCut as cut:
            self.fail(f"cut without an error event: {cut}")
        finally:
            stream.close()
        return time.monotonic(), error

    async def test_sigterm_lets_streams_finish(self):
        for _ in range(count(200)):
            server = self.serve("--shutdown-timeout", int(60 * SLOWNESS))
            streams = [await Stream.open(server, "/v1/completions", canary(i)) for i in range(32)]
            engine = server.engine_pids()
            await asyncio.sleep(random.random() * 0.1)
            server.process.send_signal(signal.SIGTERM)
            endings = await asyncio.gather(*(self.ending(stream) for stream in streams))
            self.assertEqual([error for _, error in endings if error], [])
            self.assertEqual(await asyncio.to_thread(server.process.wait, 60), 0)
            self.assertFalse(any(map(is_alive, engine)))
        print(f"SIGTERM: {count(200)} times with 32 streams, all whole, exit code 0")

    async def test_streams_end_with_an_error_when_the_time_to_finish_is_over(self):
        server = self.serve("--shutdown-timeout", 0)
        streams = [await Stream.open(server, "/v1/completions", canary(i, 450)) for i in range(64)]
        for stream in streams[:8]:
            await anext(stream.events())
        server.process.send_signal(signal.SIGTERM)
        endings = await asyncio.gather(*(self.ending(stream) for stream in streams))
        errors = [error["message"] for _, error in endings if error is not None]
        self.assertEqual(set(errors), {"the server is shutting down; the answer is not complete"})
        self.assertEqual(await asyncio.to_thread(server.process.wait, 60), 0)

    async def test_second_sigterm_stops_at_once(self):
        server = self.serve()
        streams = [await Stream.open(server, "/v1/completions", canary(i, 450)) for i in range(32)]
        engine = server.engine_pids()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.output(), 5 * SLOWNESS)
        server.process.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        await asyncio.to_thread(server.stop)
        self.assertLess(time.monotonic() - begin, 2 * SLOWNESS)
        self.assertFalse(any(map(is_alive, engine)))
        for stream in streams:
            stream.close()

    async def test_new_requests_while_draining(self):
        server = self.serve("--shutdown-timeout", int(60 * SLOWNESS))
        streams = [await Stream.open(server, "/v1/completions", canary(i, 450)) for i in range(8)]
        idle = await asyncio.open_connection(server.host, server.port)
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in server.output(), 5 * SLOWNESS)
        idle[1].close()
        endings = await asyncio.gather(*(self.ending(stream) for stream in streams))
        self.assertEqual([error for _, error in endings if error], [])

    async def test_deltas_add_up(self):
        """Streamed and whole answers are the same for random requests with multi-byte text."""
        server = self.serve()
        words = ["tar", "größe", "日本語", "🙂", "naïve", "\u0301", "git", "𝔘", "ls -l", "\n"]
        gate = asyncio.Semaphore(16)

        async def check(index):
            picked = random.Random(index)
            body = {"prompt": " ".join(picked.choices(words, k=picked.randrange(1, 12))),
                    "max_tokens": picked.randrange(1, 60), "temperature": 1.5, "seed": index,
                    "ignore_eos": picked.random() < 0.5,
                    "skip_special_tokens": picked.random() < 0.5,
                    "stop": picked.sample(["e", "a", "the", "\n", "é", "`", "{{"],
                                          picked.randrange(0, 3)),
                    "include_stop_str_in_output": picked.random() < 0.3}
            async with gate:
                streamed, error = await stream_text(server, body)
                self.assertIsNone(error)
                status, _, whole = await asyncio.to_thread(server.post, "/v1/completions", body)
            self.assertEqual(status, 200, whole)
            self.assertEqual(streamed, whole["choices"][0]["text"], body)

        await asyncio.gather(*(check(index) for index in range(count(1000))))
        print(f"deltas: {count(1000)} random requests, streamed text equals the whole text")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + [arg for arg in sys.argv[3:] if arg != "--full"])
