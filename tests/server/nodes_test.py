#!/usr/bin/env python3
"""A model on two nodes: two network namespaces of this machine with a cable between them.

usage: tests/server/nodes_test.py ATOM SOURCE_FOLDER [unittest arguments]

Needs the right to make network namespaces, and says so where it has not. With ATOM_TEST_NODES=full
it also tries stages, ranks of both kinds and workers that are killed, some minutes.
"""
import asyncio
import concurrent.futures
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import server_process
from server_process import ServerProcess
from stream_client import stream_text

sys.path.append(str(pathlib.Path(sys.argv[2]) / "tests" / "support"))
from golden_answers import golden_cases  # noqa: E402  (its folder is known only now)

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
FULL = os.environ.get("ATOM_TEST_NODES") == "full"
INSIDE = "ATOM_TEST_NODES_INSIDE"
HEAD, WORKER = "10.77.0.1", "10.77.0.2"
PORT = 29501
CASES = golden_cases(MODEL, "float32")
# What is asked is 5 s; sanitizer builds and busy machines are given more.
NOTICED = 5 * float(os.environ.get("ATOM_TEST_SLOWNESS", "1"))
SKIPPED = 77  # for ctest
server_process.START_TIMEOUT = 90  # a head whose workers fail waits for others


class Network:
    """This process's namespace with the head's address, another one for the worker."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.holder.pid}/ns/net") == own:
            time.sleep(0.01)
        self.inside = ["nsenter", "--target", str(self.holder.pid), "--net"]
        for command in (["link", "set", "lo", "up"],
                        ["link", "add", "atom0", "type", "veth", "peer", "name", "atom1",
                         "netns", str(self.holder.pid)],
                        ["addr", "add", HEAD + "/24", "dev", "atom0"],
                        ["link", "set", "atom0", "up"]):
            subprocess.run(["ip", *command], check=True)
        for command in (["addr", "add", WORKER + "/24", "dev", "atom1"],
                        ["link", "set", "atom1", "up"]):
            subprocess.run([*self.inside, "ip", *command], check=True)

    def set_cable(self, up):
        subprocess.run([*self.inside, "ip", "link", "set", "atom1", "up" if up else "down"],
                       check=True)

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Worker:
    """The node that is not the head."""

    def __init__(self, network, secret, *flags):
        self.log = tempfile.NamedTemporaryFile(mode="w+", suffix=".log")
        self.process = subprocess.Popen(
            [*network.inside, ATOM, "serve", str(MODEL), *node_flags(1, secret), *flags],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def output(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def end(self):
        self.process.kill()
        self.process.wait()


def node_flags(rank, secret):
    return ["--device", "cpu", "--dtype", "float32", "--nnodes", "2", "--node-rank", str(rank),
            "--master-addr", HEAD, "--master-port", str(PORT), "--node-secret-file", secret]


def secret_file(text):
    file = tempfile.NamedTemporaryFile(mode="w", suffix=".secret")
    file.write(text + "\n")
    file.flush()
    return file


def wait_until(condition, timeout):
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > timeout:
            raise AssertionError(f"not within {timeout} s")
        time.sleep(0.01)
    return time.monotonic() - begin


def is_ready(server):
    return server.request("GET", "/readyz")[0] == 200


class TwoNodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = Network()
        cls.addClassCleanup(cls.network.close)
        cls.secret = secret_file("what only the nodes of this test know")

    def start(self, *flags):
        worker = Worker(self.network, self.secret.name, *flags)
        self.addCleanup(worker.end)
        server = ServerProcess(ATOM, MODEL, *node_flags(0, self.secret.name), *flags)
        self.addCleanup(server.stop)
        return server, worker

    def ask(self, server, case):
        status, _, body = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": case["question"]}], "temperature": 0,
            "max_tokens": 160, "return_token_ids": True})
        self.assertEqual(status, 200, body)
        self.assertEqual(body["choices"][0]["token_ids"], case["output_ids"], case["question"])

    def check_golden(self, server, cases=CASES):
        with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
            list(pool.map(lambda case: self.ask(server, case), cases))

    def check_end(self, server, worker):
        """Who stops the head stops all of it."""
        pids = server.engine_pids()
        self.assertEqual(server.stop(), 0)
        self.assertEqual(worker.process.wait(10), 0, worker.output())
        self.assertIn("the head has ended", worker.output())
        self.assertFalse([pid for pid in pids if pathlib.Path(f"/proc/{pid}").exists()])

    async def streams_until(self, server, harm, number=32):
        """Ends and errors of streams that are cut off in the middle: seconds after the harm."""
        ends = []

        async def stream(index):
            prompt = CASES[index % len(CASES)]["prompt_ids"]
            _, error = await stream_text(server, {
                "prompt": prompt, "max_tokens": 1500, "ignore_eos": True, "seed": index})
            ends.append((time.monotonic(), error))

        tasks = [asyncio.create_task(stream(index)) for index in range(number)]
        await asyncio.sleep(0.5)
        self.assertEqual(ends, [], "too early for the test")
        harm()
        begin = time.monotonic()
        await asyncio.gather(*tasks)
        for _, error in ends:
            self.assertIsNotNone(error)
        return max(end for end, _ in ends) - begin

    def test_tensor_parallel_nodes_answer_notice_a_cut_and_recover(self):
        self.check_cut("-tp", "2")

    def test_copies_of_nodes_answer_notice_a_cut_and_recover(self):
        self.check_cut("-dp", "2")

    def check_cut(self, *flags):
        server, worker = self.start(*flags, "--max-num-seqs", "32")
        self.check_golden(server)
        cut = lambda: self.network.set_cable(up=False)  # noqa: E731
        seconds = asyncio.run(self.streams_until(server, cut))
        self.assertLess(seconds, NOTICED)
        self.assertFalse(is_ready(server))
        self.network.set_cable(up=True)
        wait_until(lambda: is_ready(server), 60)
        self.check_golden(server, CASES[:2])
        self.check_end(server, worker)
        print(f"32 streams ended {seconds:.2f} s after the cut", file=sys.stderr)

    def test_strangers_are_refused_and_harm_nothing(self):
        other = secret_file("what somebody else would like to be")
        stranger = Worker(self.network, other.name, "-tp", "2")
        self.addCleanup(stranger.end)
        worker_flags = ("-tp", "2", "--max-num-seqs", "8")
        head = {}

        def serve():
            head["server"] = ServerProcess(ATOM, MODEL, *node_flags(0, self.secret.name),
                                           *worker_flags)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            started = pool.submit(serve)
            self.assertNotEqual(stranger.process.wait(60), 0)
            self.assertIn("knows the secret", stranger.output())
            for index in range(1000):
                with socket.create_connection((HEAD, PORT), 5) as connection:
                    connection.sendall(os.urandom(index % 700))
            worker = Worker(self.network, self.secret.name, *worker_flags)
            self.addCleanup(worker.end)
            started.result()
        self.addCleanup(head["server"].stop)
        self.check_golden(head["server"], CASES[:1])
        self.check_end(head["server"], worker)

    def test_nodes_that_are_set_up_otherwise_are_told_so(self):
        worker = Worker(self.network, self.secret.name, "-tp", "2", "--block-size", "32")
        self.addCleanup(worker.end)
        head = subprocess.Popen(
            [ATOM, "serve", str(MODEL), *node_flags(0, self.secret.name), "-tp", "2"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(head.wait)
        self.addCleanup(head.kill)
        self.assertNotEqual(worker.process.wait(60), 0)
        self.assertIn("the head is set up as", worker.output())

    @unittest.skipUnless(FULL, "ATOM_TEST_NODES=full")
    def test_stages_and_ranks_of_both_kinds(self):
        for flags in (("-pp", "2"), ("-tp", "2", "-pp", "2"), ("-tp", "4"), ("-tp", "2", "-dp", "2"),
                      ("-tp", "2", "--speculative-config",
                       '{"method": "ngram", "num_speculative_tokens": 3}')):
            with self.subTest(flags=flags):
                server, worker = self.start(*flags)
                self.check_golden(server)
                self.check_end(server, worker)

    @unittest.skipUnless(FULL, "ATOM_TEST_NODES=full")
    def test_a_worker_that_is_killed_comes_back(self):
        server, worker = self.start("-tp", "2")
        for _ in range(5):
            seconds = asyncio.run(self.streams_until(
                server, lambda: worker.process.send_signal(signal.SIGKILL)))
            self.assertLess(seconds, NOTICED)
            worker.end()
            worker = Worker(self.network, self.secret.name, "-tp", "2")
            self.addCleanup(worker.end)
            wait_until(lambda: is_ready(server), 60)
            self.check_golden(server, CASES[:2])
        self.check_end(server, worker)


if __name__ == "__main__":
    if INSIDE not in os.environ:
        cable = "ip link set lo up && ip link add atom0 type veth peer name atom1 && nsenter -V"
        probe = subprocess.run(["unshare", "--net", "sh", "-c", cable], text=True, check=False,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if probe.returncode != 0:
            print(f"skipped: no network namespaces may be made here: {probe.stderr.strip()}")
            sys.exit(SKIPPED)
        os.execvpe("unshare", ["unshare", "--net", sys.executable, *sys.argv],
                   {**os.environ, INSIDE: "1"})
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
