#!/usr/bin/env python3
"""What an attacker can no longer do: each test attacks a server and looks at what it costs.

usage: tests/server/attack_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from server_process import ServerProcess

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
SLOWNESS = float(os.environ.get("ATOM_TEST_SLOWNESS", "5"))
MIB = 1 << 20

# Reads 30 MB at each of 10^10 turns.
ENDLESS_TEMPLATE = ("{% set a = 'a' * 30000000 %}{% set b = 'a' * 15000000 ~ 'b' %}"
                    "{% for i in range(100000) %}{% for j in range(100000) %}"
                    "{% if b in a %}{% endif %}{% endfor %}{% endfor %}")
MESSAGES = [{"role": "user", "content": "What is tar?"}]


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024


def peak_bytes(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def wait_until(condition, timeout):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s")
        time.sleep(0.01)


class AttackTest(unittest.TestCase):
    maxDiff = None

    def serve(self, *flags, env=None):
        server = ServerProcess(ATOM, MODEL, "--max-model-len", 2048, *flags, env=env)
        self.addCleanup(server.stop)
        return server

    def send(self, server, path, body, headers=()):
        """A request on a connection of its own, which is returned with nothing read."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = socket.create_connection((server.host, server.port))
        self.addCleanup(connection.close)
        lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
                 f"Content-Length: {len(data)}", *headers]
        with contextlib.suppress(OSError):
            connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        return connection

    def assert_error(self, answer, status, **fields):
        self.assertEqual(answer[0], status, answer[2])
        error = answer[2]["error"]
        for name, value in fields.items():
            self.assertEqual(error[name], value, error)

    def assert_serves(self, server):
        status, _, answer = server.post("/v1/completions", {"prompt": "tar", "max_tokens": 4})
        self.assertEqual(status, 200, answer)

    def assert_memory_returns(self, server, baseline, mebibytes=50):
        wait_until(lambda: resident_bytes(server.process.pid) < baseline + mebibytes * MIB,
                   10 * SLOWNESS)


class Templates(AttackTest):
    def test_are_refused(self):
        server = self.serve()
        body = {"messages": MESSAGES, "chat_template": "{{ 1 }}"}
        for path in ("/v1/chat/completions", "/tokenize"):
            self.assert_error(server.post(path, body), 400, param="chat_template",
                              code="unsupported")
        self.assertEqual(server.post("/v1/chat/completions",
                                     {"messages": MESSAGES, "max_tokens": 2})[0], 200)

    def test_end_after_a_second(self):
        server = self.serve("--trust-request-chat-template", "--num-workers", 1)
        pid = server.process.pid
        before = cpu_seconds(pid)
        answer = server.post("/v1/chat/completions",
                             {"messages": MESSAGES, "chat_template": ENDLESS_TEMPLATE})
        self.assert_error(answer, 400)
        self.assertIn("did not end within", answer[2]["error"]["message"])
        self.assertLess(cpu_seconds(pid) - before, 2)

    def test_stop_with_their_client_and_hold_nobody_else(self):
        server = self.serve("--trust-request-chat-template", "--num-workers", 1)
        pid = server.process.pid
        before = cpu_seconds(pid)
        body = {"messages": MESSAGES, "chat_template": ENDLESS_TEMPLATE}
        attackers = [self.send(server, "/v1/chat/completions", body) for _ in range(20)]
        wait_until(lambda: cpu_seconds(pid) - before > 0.2, 10 * SLOWNESS)
        # All of them together take 20 s of the worker.
        self.assertEqual(server.request("GET", "/metrics")[0], 200)
        self.assertEqual(server.request("GET", "/livez")[0], 200)
        for attacker in attackers:
            attacker.close()
        self.assert_serves(server)
        self.assertLess(cpu_seconds(pid) - before, 4)

    def test_do_not_hold_the_end(self):
        server = self.serve("--trust-request-chat-template", "--num-workers", 1,
                            "--shutdown-timeout", 2)
        body = {"messages": MESSAGES, "chat_template": ENDLESS_TEMPLATE}
        for _ in range(30):
            self.send(server, "/v1/chat/completions", body)
        wait_until(lambda: cpu_seconds(server.process.pid) > 0.5, 10 * SLOWNESS)
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(60), 0)
        self.assertLess(time.monotonic() - begin, 3 + 0.2 * SLOWNESS)

    def test_continued_messages_are_found_in_linear_time(self):
        server = self.serve("--trust-request-chat-template")
        pid = server.process.pid
        before = cpu_seconds(pid)
        answer = server.post("/v1/chat/completions", {
            "messages": [*MESSAGES, {"role": "assistant", "content": "a" * 65536 + "b"}],
            "chat_template": "{{ 'a' * 16000000 }}", "continue_final_message": True})
        self.assert_error(answer, 400)
        self.assertLess(cpu_seconds(pid) - before, 1.5)


class Bodies(AttackTest):
    def test_without_a_key_are_not_read(self):
        server = self.serve("--api-key", "secret")
        pid = server.process.pid
        before = resident_bytes(pid)
        part = b"x" * (4 * MIB)
        for path in ("/v1/completions", "/nowhere", "/livez"):
            for _ in range(8):
                connection = socket.create_connection((server.host, server.port))
                self.addCleanup(connection.close)
                connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
                                   f"Content-Length: {30 * MIB}\r\n\r\n".encode())
                status = {"/v1/completions": b"401", "/nowhere": b"404", "/livez": b"405"}[path]
                self.assertIn(status, connection.recv(4096).split(b"\r\n")[0])
                with contextlib.suppress(OSError):
                    connection.sendall(part)
        self.assertLess(resident_bytes(pid) - before, 20 * MIB)

    def test_share_a_budget(self):
        server = self.serve("--max-buffered-bytes", 64)
        pid = server.process.pid
        before = resident_bytes(pid)
        body = b"[" + b" " * (30 * MIB)
        connections = []
        for _ in range(10):
            connection = socket.create_connection((server.host, server.port))
            connection.settimeout(30 * SLOWNESS)
            connections.append(connection)
            self.addCleanup(connection.close)
            with contextlib.suppress(OSError):
                connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                                   b"Content-Type: application/json\r\n"
                                   b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body)
        self.assertLess(resident_bytes(pid) - before, 110 * MIB)
        refused = connections[-1].recv(4096)
        self.assertIn(b" 429 ", refused.split(b"\r\n")[0])
        self.assertIn(b"Retry-After: 1", refused)
        for connection in connections:
            connection.close()
        self.assert_memory_returns(server, before)
        self.assert_serves(server)

    def test_of_clients_that_left_are_dropped(self):
        server = self.serve("--num-workers", 1)
        pid = server.process.pid
        baseline = resident_bytes(pid)
        text = "tar -x " * (10 * MIB // 7)
        before = cpu_seconds(pid)
        connections = [self.send(server, "/tokenize", {"prompt": text}) for _ in range(6)]
        for connection in connections:
            connection.close()
        self.assert_serves(server)
        # One of them was being worked on, at most.
        self.assertLess(cpu_seconds(pid) - before, 6)
        self.assert_memory_returns(server, baseline)


class Json(AttackTest):
    def test_takes_a_multiple_of_its_bytes(self):
        server = self.serve()
        pid = server.process.pid
        baseline = resident_bytes(pid)
        for field, status in (("chat_template_kwargs", 400), ("tools", 400)):
            value = b'[' + b'{"":[]},' * (19 * MIB // 8) + b'0]'
            if field == "chat_template_kwargs":
                value = b'{"x":' + value + b'}'
            body = (b'{"messages":' + json.dumps(MESSAGES).encode() + b',"max_tokens":1,"'
                    + field.encode() + b'":' + value + b'}')
            answer = server.post("/v1/chat/completions", body)
            self.assert_error(answer, status, code="invalid_json")
            self.assertIn("memory", answer[2]["error"]["message"])
        self.assertLess(peak_bytes(pid) - baseline, 25 * 20 * MIB)
        self.assert_memory_returns(server, baseline)
        self.assert_serves(server)

    def test_honest_bodies_are_taken(self):
        server = self.serve()
        prompt = [5] * 1900
        status, _, answer = server.post("/v1/completions", {"prompt": [prompt] * 16,
                                                            "max_tokens": 1})
        self.assertEqual(status, 200, answer)

    def test_out_of_memory_fails_the_request_alone(self):
        server = self.serve("--num-workers", 1)
        pid = server.process.pid
        size = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
        limit = size * os.sysconf("SC_PAGE_SIZE") + 60 * MIB
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))
        text = "a" * (29 * MIB)
        statuses = []
        for path in ("/v1/completions", "/tokenize", "/v1/chat/completions"):
            for _ in range(3):
                body = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {
                    "prompt": text}
                with contextlib.suppress(OSError, http.client.HTTPException):
                    statuses.append(server.post(path, body)[0])
        self.assertIsNone(server.process.poll(), server.output()[-2000:])
        self.assertTrue({400, 413, 429, 500, 503} >= set(statuses), statuses)
        self.assertIn("out of memory", server.output())
        self.assert_serves(server)


class Amplification(AttackTest):
    def test_prompt_logprobs_come_once(self):
        server = self.serve()
        body = {"prompt": [7] * 500, "n": 16, "max_tokens": 1, "prompt_logprobs": 64}
        status, headers, answer = server.post("/v1/completions", body)
        self.assertEqual(status, 200)
        self.assertLess(int(headers["Content-Length"]), 4 * MIB)
        self.assertEqual(len(answer["choices"]), 16)
        self.assertEqual(len(answer["choices"][0]["prompt_logprobs"]), 500)
        self.assertEqual([c["prompt_logprobs"] for c in answer["choices"][1:]], [None] * 15)
        # With echo every answer has the prompt, and what it weighs.
        body = {"prompt": [7] * 20, "n": 3, "max_tokens": 2, "echo": True, "logprobs": 2, "seed": 1}
        choices = server.post("/v1/completions", body)[2]["choices"]
        first = choices[0]["logprobs"]["token_logprobs"][:20]
        self.assertEqual(sum(value is None for value in first), 1)
        for choice in choices:
            self.assertEqual(choice["logprobs"]["token_logprobs"][:20], first)
        events = server.events("/v1/completions", body)
        for index in range(3):
            begin = next(e["choices"][0] for e in events
                         if e.get("choices") and e["choices"][0]["index"] == index)
            self.assertEqual(begin["logprobs"]["token_logprobs"][:20], first)

    def test_answers_have_a_bound(self):
        server = self.serve()
        begin = time.monotonic()
        body = {"prompt": [[7] * 2000] * 64, "max_tokens": 1, "prompt_logprobs": 64}
        self.assert_error(server.post("/v1/completions", body), 400)
        self.assertLess(time.monotonic() - begin, SLOWNESS)

    def test_a_text_that_cannot_fit_is_not_tokenized(self):
        server = self.serve()
        pid = server.process.pid
        before = cpu_seconds(pid)
        for text in ("tar -x " * (2 * MIB), "x" * (14 * MIB)):
            self.assert_error(server.post("/v1/completions", {"prompt": text}), 400, param="prompt",
                              code="context_length_exceeded")
            self.assert_error(
                server.post("/v1/chat/completions",
                            {"messages": [{"role": "user", "content": text}]}), 400,
                param="messages", code="context_length_exceeded")
        self.assertLess(cpu_seconds(pid) - before, 4)

    def test_tokenizing_ends_with_its_client(self):
        server = self.serve("--num-workers", 1)
        pid = server.process.pid
        letters = random.Random(1)
        text = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=20 * MIB))
        connection = self.send(server, "/tokenize", {"prompt": text})
        wait_until(lambda: cpu_seconds(pid) > 1, 20 * SLOWNESS)
        connection.close()
        before = cpu_seconds(pid)
        self.assert_serves(server)
        self.assertLess(cpu_seconds(pid) - before, 1)


class Browsers(AttackTest):
    def post(self, server, headers, path="/v1/completions", body='{"prompt":"x","max_tokens":1}'):
        return server.request("POST", path, body, headers)

    def test_pages_of_others_cannot_call(self):
        server = self.serve("--profile-dir", tempfile.gettempdir())
        evil = {"Origin": "http://evil.example"}
        answer = self.post(server, {**evil, "Content-Type": "text/plain"})
        self.assert_error(answer, 403, code="origin_not_allowed")
        self.assertIsNone(answer[1]["Access-Control-Allow-Origin"])
        self.assert_error(self.post(server, {**evil, "Content-Type": "application/json"}), 403)
        self.assert_error(self.post(server, evil, "/start_profile", ""), 403)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
            self.assert_error(self.post(server, {"Content-Type": kind}), 415)
        # A page may leave the type out.
        self.assert_error(self.post(server, {"Sec-Fetch-Site": "cross-site"}), 415)
        preflight = server.request("OPTIONS", "/v1/completions", None,
                                   {**evil, "Access-Control-Request-Method": "POST"})
        self.assertIsNone(preflight[1]["Access-Control-Allow-Origin"])

    def test_own_pages_and_programs_can(self):
        server = self.serve()
        for headers in ({}, {"Content-Type": "application/json"},
                        {"Content-Type": "Application/JSON; charset=utf-8"},
                        {"Content-Type": "application/json", "Origin": server.url},
                        {"Host": "localhost:1"}, {"Host": "[::1]:8000"}, {"Host": "127.0.0.1"}):
            self.assertEqual(self.post(server, headers)[0], 200, headers)

    def test_names_that_lead_here_from_outside_are_refused(self):
        server = self.serve()
        for host in ("rebind.evil.example", "rebind.evil.example:8000", "localhost.evil.example"):
            self.assert_error(self.post(server, {"Host": host}), 403, code="host_not_allowed")
            self.assertEqual(server.request("GET", "/v1/models", None, {"Host": host})[0], 403)
        named = self.serve("--allowed-hosts", "box.example", "--allowed-origins", "http://a.example")
        self.assertEqual(self.post(named, {"Host": "BOX.example:80"})[0], 200)
        answer = self.post(named, {"Origin": "http://a.example", "Content-Type": "application/json"})
        self.assertEqual(answer[0], 200)
        self.assertEqual(answer[1]["Access-Control-Allow-Origin"], "http://a.example")


class Tenants(AttackTest):
    def serve_keys(self, text, *flags):
        file = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.addCleanup(file.close)
        file.write(text)
        file.flush()
        return self.serve("--api-key-file", file.name, *flags), pathlib.Path(file.name)

    def ask(self, server, key, **fields):
        body = {"prompt": [9] * 200, "max_tokens": 1, **fields}
        return server.post("/v1/completions", body, {"Authorization": f"Bearer {key}"})

    def cached(self, server, key, **fields):
        status, _, answer = self.ask(server, key, **fields)
        self.assertEqual(status, 200, answer)
        return answer["usage"].get("prompt_tokens_details", {}).get("cached_tokens")

    def test_see_nothing_of_each_other(self):
        server, _ = self.serve_keys("a\nb\n")
        self.assertIsNone(self.cached(server, "a"))
        self.assertIsNone(self.cached(server, "b"))
        server, _ = self.serve_keys("a\nb\n", "--cache-salt-per-key")
        self.assertEqual(self.cached(server, "a"), 0)
        self.assertGreater(self.cached(server, "a"), 0)
        self.assertEqual(self.cached(server, "b"), 0)
        self.assertEqual(self.cached(server, "b", cache_salt="x"), 0)
        self.assertGreater(self.cached(server, "b"), 0)

    def test_have_quotas_and_scopes(self):
        server, path = self.serve_keys(
            "a name=alice requests_per_minute=3 max_places=4 min_priority=0\n"
            "b name=bob tokens_per_minute=100\nc name=carol scopes=metrics\n")
        self.assert_error(self.ask(server, "a", n=5), 429, code="rate_limit_exceeded")
        self.assert_error(self.ask(server, "a", priority=-1), 400, param="priority")
        self.assertEqual(self.ask(server, "a", n=4)[0], 200)
        refused = self.ask(server, "a")
        self.assert_error(refused, 429, code="rate_limit_exceeded")
        self.assertGreater(int(refused[1]["Retry-After"]), 0)
        self.assertEqual(self.ask(server, "b")[0], 200)
        self.assert_error(self.ask(server, "b"), 429)
        self.assert_error(self.ask(server, "c"), 403, code="insufficient_scope")
        self.assertEqual(server.request("GET", "/metrics")[0], 401)
        self.assertEqual(
            server.request("GET", "/metrics", None, {"Authorization": "Bearer c"})[0], 200)
        self.assertIn("key=alice", server.output())
        self.assertNotIn("Bearer", server.output())
        # SIGHUP reads the file again; what is wrong changes nothing.
        path.write_text("a max_places=x\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "stay as they were" in server.output(), 5 * SLOWNESS)
        self.assertEqual(self.ask(server, "c")[0], 403)
        path.write_text("d name=dave\na name=alice requests_per_minute=3\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "were read again" in server.output(), 5 * SLOWNESS)
        self.assertEqual(self.ask(server, "d")[0], 200)
        self.assertEqual(self.ask(server, "a")[0], 429)
        self.assertEqual(self.ask(server, "b")[0], 401)


class Processes(AttackTest):
    def test_signals_do_not_end_the_server(self):
        server = self.serve()
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            server.process.send_signal(number)
            time.sleep(0.1)
            self.assert_serves(server)

    def test_readiness_sees_workers_that_are_stuck(self):
        server = self.serve("--num-workers", 1)
        letters = random.Random(1)
        text = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=31 * MIB))
        long = self.send(server, "/tokenize", {"prompt": text})
        wait_until(lambda: cpu_seconds(server.process.pid) > 0.5, 20 * SLOWNESS)
        waiting = self.send(server, "/v1/completions", {"prompt": "tar", "max_tokens": 1})
        wait_until(lambda: server.request("GET", "/readyz")[0] == 503, 20 * SLOWNESS)
        self.assert_error(server.request("GET", "/readyz"), 503, code="workers_stuck")
        self.assertEqual(server.request("GET", "/livez")[0], 200)
        long.close()
        wait_until(lambda: server.request("GET", "/readyz")[0] == 200, 20 * SLOWNESS)
        waiting.settimeout(20 * SLOWNESS)
        self.assertIn(b" 200 ", waiting.recv(4096).split(b"\r\n")[0])

    def test_the_folder_of_sockets_may_go_away(self):
        with tempfile.TemporaryDirectory(prefix="x") as parent:
            server = self.serve(env={"XDG_RUNTIME_DIR": parent})
            folder, = pathlib.Path(parent).iterdir()
            shutil.rmtree(folder)
            engine, = server.engine_pids()
            os.kill(engine, signal.SIGKILL)
            # The new process is looked for first: a server that has not yet seen the end of
            # the old one calls itself ready.
            wait_until(lambda: server.engine_pids() not in ([], [engine])
                       and server.request("GET", "/readyz")[0] == 200, 20 * SLOWNESS)
            self.assert_serves(server)
            self.assertEqual(server.stop(), 0)

    def test_connections_leave_descriptors_to_the_engine(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        command = pathlib.Path(folder.name) / "atom"
        for limit, serves in ((24, False), (32, True)):
            with self.subTest(limit):
                command.write_text(f'#!/bin/sh\nulimit -n {limit}\nexec "{ATOM}" "$@"\n')
                command.chmod(0o700)
                if not serves:
                    with self.assertRaisesRegex(RuntimeError, "open files"):
                        ServerProcess(command, MODEL)
                    continue
                server = ServerProcess(command, MODEL)
                self.addCleanup(server.stop)
                held = [socket.create_connection((server.host, server.port)) for _ in range(100)]
                engine, = server.engine_pids()
                os.kill(engine, signal.SIGKILL)
                wait_until(lambda: "serves again" in server.output(), 20 * SLOWNESS)
                for connection in held:
                    connection.close()
                wait_until(lambda: self.is_ready(server), 20 * SLOWNESS)
                self.assert_serves(server)

    def is_ready(self, server):
        try:
            return server.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def test_the_engine_knows_no_secrets(self):
        server = self.serve(env={"HF_TOKEN": "hush", "ATOM_API_KEY": "hush"})
        engine, = server.engine_pids()
        environment = pathlib.Path(f"/proc/{engine}/environ").read_bytes()
        self.assertIn(b"PATH=", environment)
        self.assertNotIn(b"hush", environment)

    def test_fifos_are_no_checkpoints(self):
        for name in ("config.json", "tokenizer.json", "generation_config.json"):
            with tempfile.TemporaryDirectory() as folder:
                for file in MODEL.iterdir():
                    if file.name != name:
                        os.symlink(file.resolve(), pathlib.Path(folder) / file.name)
                os.mkfifo(pathlib.Path(folder) / name)
                ended = subprocess.run([ATOM, "serve", folder, "--port", "0"], timeout=60,
                                       capture_output=True, text=True, check=False)
                self.assertEqual(ended.returncode, 1)
                self.assertIn("not a regular file", ended.stderr)

    def test_logs_are_lines_of_text(self):
        server = self.serve()
        server.request("GET", "/%C2%9B31m%E2%80%AEx%E2%80%A8y")
        wait_until(lambda: "u009b31m" in server.output(), 5 * SLOWNESS)
        for active in ("\x9b", "\u202e", "\u2028"):
            self.assertNotIn(active, server.output())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
