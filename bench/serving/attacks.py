#!/usr/bin/env python3
"""Attacks a server in many ways, beside 16 streams that have to notice nothing.

usage: bench/serving/attacks.py ATOM CHECKPOINT [--requests 64] [--quiet-seconds 3] [--kinds NAME ...]

Sends so many requests of each kind, 16 at a time, while 16 seeded streams run over and over; each of
these must get the text that it got before. Then 16 more whose clients leave at once, and nothing
else: server and engine may not work on for a CPU second, and the memory of each must be back within
50 MiB of what it was. No descriptor may be left open, and no process may have been started again.
"""
import argparse
import asyncio
import collections
import contextlib
import json
import os
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "server"))
from server_process import ServerProcess  # noqa: E402
from stream_client import stream_text  # noqa: E402

KEY = "attack"
MIB = 1 << 20
AT_A_TIME = 16
NUM_CANARIES = 16
MAX_GROWTH = 50 * MIB
MAX_ANSWER = 64 * MIB
ANSWER_TIMEOUT = 240  # seconds; the machine may be busy
SETTLE_TIMEOUT = 20
# Blocks of the KV cache count as memory when they are first written: a cache of few, filled first.
FLAGS = ("--max-model-len", 2048, "--trust-request-chat-template", "--max-num-seqs", 64,
         "--kv-cache-memory", "24MiB")
MESSAGES = [{"role": "user", "content": "What is tar?"}]
ENDLESS_TEMPLATE = ("{% set a = 'a' * 3000000 %}{% set b = 'a' * 1500000 ~ 'b' %}"
                    "{% for i in range(100000) %}{% for j in range(100000) %}"
                    "{% if b in a %}{% endif %}{% endfor %}{% endfor %}")
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


def http(path, body, *headers, key=True, length=None):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json",
             "Connection: close", f"Content-Length: {len(data) if length is None else length}"]
    if key:
        lines.append(f"Authorization: Bearer {KEY}")
    return "\r\n".join([*lines, *headers]).encode() + b"\r\n\r\n" + data


# Each kind makes the bytes that a client sends, from its own random numbers.

def templates(rng):
    kind = rng.choice(["{{ 'a' * 2000000000 }}", "{% for a in range(10**12) %}{% endfor %}",
                       "{{ 'x'|center(1000000000) }}", "{{ [" * 3000, ENDLESS_TEMPLATE])
    return http(CHAT, {"messages": MESSAGES, "chat_template": kind})


def continued_messages(rng):
    last = {"role": "assistant", "content": "a" * rng.choice([1024, 65536]) + "b"}
    return http(CHAT, {"messages": [*MESSAGES, last], "continue_final_message": True,
                       "chat_template": "{{ 'a' * 4000000 }}"})


def unfinished_bodies(rng):
    return http(COMPLETIONS, b"[" + b" " * rng.choice([1, 4096, MIB]), length=30 * MIB)


def without_key(rng):
    return http(rng.choice([COMPLETIONS, CHAT, "/nowhere", "/livez", "/metrics"]),
                b"x" * rng.choice([0, MIB]), key=False)


def wide_json(rng):
    entry = rng.choice([b'{"":[]},', b'[[]],', b'{"a":{}},', b'"",', b"1,"])
    value = b"[" + entry * (rng.choice([1, 2]) * MIB // len(entry)) + b"0]"
    field = rng.choice([b"tools", b"metadata", b"unknown", b"stop", b"logit_bias"])
    return http(CHAT, b'{"messages":' + json.dumps(MESSAGES).encode() + b',"max_tokens":1,"' + field
                + b'":' + value + b"}")


def deep_json(rng):
    opening, closing = rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    depth = rng.choice([100, 1000, 100000])
    body = opening * depth + b"0" + closing * rng.choice([0, depth])
    return http(CHAT, rng.choice([body, b'{"messages":' + body + b"}"]))


def many_logprobs(rng):
    return http(COMPLETIONS, {"prompt": [7] * rng.choice([100, 500]), "n": rng.choice([8, 128]),
                              "max_tokens": 1, "prompt_logprobs": 64, "echo": rng.random() < 0.5})


def long_texts(rng):
    text = rng.choice(["tar -x ", "x", "\u00e9", "\U0001f600", " ", "\n"]) * (rng.choice([1, 3]) * MIB)
    if rng.random() < 0.5:
        return http(COMPLETIONS, {"prompt": text[:4 * MIB], "max_tokens": 1})
    return http("/tokenize", {"prompt": text[:MIB]})


def cut_heads(rng):
    whole = http(COMPLETIONS, {"prompt": "x", "max_tokens": 1})
    return whole[:rng.randrange(1, whole.index(b"\r\n\r\n") + 3)]


def odd_http(rng):
    body = b'{"prompt":"x","max_tokens":1}'
    head = f"POST {COMPLETIONS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n".encode()
    lines = rng.choice([
        b"Content-Length: 29\r\nTransfer-Encoding: chunked\r\n", b"Content-Length: 29, 30\r\n",
        b"Content-Length: -1\r\n", b"Content-Length: +29\r\n", b"Content-Length: 0x1d\r\n",
        b"Content-Length: 99999999999999999999\r\n", b"Content-Length: 29\r\nContent-Length: 30\r\n",
        b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: xchunked\r\n",
        b"Content-Length : 29\r\n", b" Content-Length: 29\r\n", b"Expect: 200-maybe\r\n",
        b"X: " + b"a" * 70000 + b"\r\n", b"X: a\r\n" * 3000, b"\x00: a\r\n", b"X: \x00\x1b[2J\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n1d;a=" + b"b" * 20000 + b"\r\n",
    ])
    return head + lines + b"Connection: close\r\n\r\n" + body


def odd_names(rng):
    path = rng.choice(["/v1/" + "a" * 20000, "/\x9b31m", "/%00%0d%0aX: y", "/../../etc/passwd",
                       "//v1/completions", "/v1/completions/../models", "/\u202eabc", "*", "",
                       "http://evil.example/v1/models", "/v1/responses/" + "%2e%2e/" * 500])
    method = rng.choice(["GET", "POST", "DELETE", "TRACE", "CONNECT", "PRI", "A" * 300, "get"])
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def long_answers(rng):
    return http(COMPLETIONS, {"prompt": [9] * rng.choice([1, 700]), "max_tokens": 200,
                              "ignore_eos": True, "n": rng.choice([1, 4]),
                              "stream": rng.random() < 0.5})


def schemas(rng):
    nested = {"type": "string"}
    for _ in range(rng.choice([5, 60])):
        doubled = rng.random() < 0.3 and len(json.dumps(nested)) < MIB
        nested = {"anyOf": [nested, {"type": "array", "items": nested}]} if doubled else {
            "type": "object", "properties": {"a": nested}, "required": ["a"]}
    return http(COMPLETIONS, {"prompt": "x", "max_tokens": 16, "json_schema": rng.choice([
        nested, {"enum": [f"word {rng.random()}" for _ in range(20000)]}, {"$ref": "#"},
        {"$ref": "#/a/b"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "string", "minLength": rng.randrange(10**6), "maxLength": 10**9},
        {"type": "array", "minItems": 10**6, "items": {"type": "array", "minItems": 10**6}},
        {"type": "string", "pattern": "(" * 2000}, {"not": {}}, {"type": "nothing"}, [], 7,
        {"type": "object", "properties": {f"p{i}": {} for i in range(300)}},
        {"type": "integer", "minimum": -10**30, "maximum": rng.randrange(10**18)},
    ])})


def patterns(rng):
    letter = rng.choice("abcdefghij")
    return http(COMPLETIONS, {"prompt": "x", "max_tokens": 16, "regex": rng.choice([
        f"([a-z ]|[0-9]|{letter}){{2000}}", f"({letter}*)*{letter}", f"({letter}|{letter}{letter})+x",
        f"(({letter}{{1,50}}){{1,50}}){{1,50}}", f"[a-z]{{2,40}}( [{letter}-z]{{2,40}}){{3,20}}\\.",
        f"(.{{1,{rng.randrange(9, 999)}}}){{100000}}", "(" * 5000 + ")" * 5000, "[z-a]", "(?=a)b",
        "\\p{Nothing}", f"{letter}{{99999999999}}", "(?<a>b)\\k<a>", "\\u{110000}", "|" * 10000,
    ])})


def grammars(rng):
    name = rng.choice("abcdefgh")
    return http(COMPLETIONS, {"prompt": "x", "max_tokens": 16, "grammar": rng.choice([
        f"root ::= root {name} | {name}\n{name} ::= \"x\" | root", f"root ::= {name}\n{name} ::= {name}",
        "root ::= " + "(" * 3000, "root ::= " + "\"a\" | " * 5000 + f"\"{name}\"", "", "root",
        f"root ::= (({name} | \"x\")* \"y\")* \n{name} ::= root | \"x\"", "root ::= \"\\u{ffffff}\"",
        f"root ::= \"{name}\"{{1000000}}", f"root ::= [^{name}]{{1,100}} root | \"\"",
    ])})


def wrong_fields(rng):
    name, value = rng.choice([
        ("max_tokens", -1), ("max_tokens", 10**30), ("temperature", -1), ("temperature", "1"),
        ("top_p", 0), ("top_k", -7), ("n", 10**6), ("logprobs", 999), ("stop", [""]),
        ("stop_token_ids", [10**6]), ("logit_bias", {"a": 1}), ("seed", "x"), ("model", "nobody"),
        ("prompt", []), ("prompt", [[[]]]), ("prompt", [10**6]), ("best_of", 0), ("stream", "yes"),
        ("stream_options", []), ("user", {}), ("response_format", 7), ("priority", -2**63),
        ("cache_salt", "x" * MIB), ("request_id", "\n"), ("truncate_prompt_tokens", -5)])
    return http(COMPLETIONS, {"prompt": "x", "max_tokens": 1, name: value})


def long_lists(rng):
    number = rng.choice([1000, 20000])
    extra = rng.choice([
        {"stop": [f"never {i}" for i in range(number)]}, {"stop": ["x" * 100000]},
        {"bad_words": [f"word {i}" for i in range(number)]},
        {"logit_bias": {str(i): 1 for i in range(min(number, 8000))}},
        {"allowed_token_ids": list(range(3, 8000))}, {"stop_token_ids": [3] * number},
        {"prompt": [[5]] * number}, {"prompt": ["a"] * number},
        {"metadata": {str(i): "x" for i in range(number)}}])
    return http(COMPLETIONS, {"prompt": "x", "max_tokens": 4, **extra})


def tools(rng):
    tool = {"type": "function", "function": {"name": "f", "parameters": rng.choice([
        {"type": "object", "properties": {"a": {"type": "string"}}}, {"type": 7}, [], {"$ref": "#"}])}}
    return http(CHAT, {"messages": [*MESSAGES, *rng.choice([[], [
        {"role": "tool", "tool_call_id": "none", "content": "x"}], [
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {
            "name": "f", "arguments": "{" * 10000}}]}], [{"role": "x" * 5000, "content": None}]])],
        "tools": [tool] * rng.choice([1, 200]), "max_tokens": 8,
        "tool_choice": rng.choice(["auto", "required", "none", "x", {"type": "function"}])})


def mutations(rng):
    data = bytearray(http(CHAT, {"messages": MESSAGES, "max_tokens": 3, "temperature": 0.5, "seed": 1,
                                 "stop": ["x"], "logprobs": True, "top_logprobs": 2}))
    for _ in range(rng.choice([1, 3, 10])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def pipelines(rng):
    one = (f"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\r\n").encode()
    return one * rng.choice([20, 200]) + http(COMPLETIONS, {"prompt": "x", "max_tokens": 1})


KINDS = (templates, continued_messages, unfinished_bodies, without_key, wide_json, deep_json,
         many_logprobs, long_texts, cut_heads, odd_http, odd_names, long_answers, schemas, patterns,
         grammars, wrong_fields, long_lists, tools, mutations, pipelines)
# What never ends by itself: its clients leave.
LEAVE = (unfinished_bodies, cut_heads)
# A grammar that leaves too many ways to go on ends its request with 500; 501 and 505 are HTTP's.
MORE_STATUSES = {schemas: {500}, patterns: {500}, grammars: {500},
                 odd_http: {501, 505}, odd_names: {501, 505}, mutations: {501, 505}}


class Target:
    """The server under attack."""

    def __init__(self, server):
        self.server = server
        self.pids = [server.process.pid, *server.engine_pids()]
        self.baseline = self.memory()
        self.descriptors = self.num_descriptors()

    def memory(self):
        return [int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
                for pid in self.pids]

    def num_descriptors(self):
        return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids)

    def cpu_seconds(self):
        total = 0
        for pid in self.pids:
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def is_same(self):
        return self.pids == [self.server.process.pid, *self.server.engine_pids()]


async def send(server, data, leave_after=None):
    """The status of the first answer, None where the server has just closed, "left"."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=4 * MIB)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(data)
            if leave_after is not None:
                await asyncio.sleep(leave_after)
                return "left"
            await asyncio.wait_for(writer.drain(), ANSWER_TIMEOUT)
        size, status = 0, None
        with contextlib.suppress(ConnectionError):
            while part := await asyncio.wait_for(reader.read(MIB), ANSWER_TIMEOUT):
                if size == 0:
                    status = int(part.split(b" ", 2)[1])
                size += len(part)
        assert size < MAX_ANSWER, f"an answer of {size} bytes"
        return status
    finally:
        writer.transport.abort()


async def canaries(server):
    bodies = ({"prompt": [100 + i, 200 + i], "max_tokens": 60, "ignore_eos": True,
               "temperature": 0.8, "seed": i} for i in range(NUM_CANARIES))
    return await asyncio.gather(*(stream_text(server, body, KEY) for body in bodies))


async def attack(arguments, target, kind, expected):
    """Counts of statuses, rounds of the canaries."""
    rng = random.Random(kind.__name__)
    left_to_send = iter(range(arguments.requests))
    statuses = collections.Counter()

    async def client():
        for _ in left_to_send:
            leaves = kind in LEAVE or rng.random() < 0.2
            status = await send(target.server, kind(rng), rng.random() if leaves else None)
            statuses[status] += 1

    work = asyncio.gather(*(client() for _ in range(AT_A_TIME)))
    rounds = 0
    while not work.done() or rounds == 0:
        assert await canaries(target.server) == expected, f"a stream beside {kind.__name__} differs"
        rounds += 1
    await work
    allowed = {200, 503, None, "left", *range(400, 500), *MORE_STATUSES.get(kind, ())}
    assert set(statuses) <= allowed, f"{kind.__name__}: {statuses}"
    return statuses, rounds


async def cpu_after_leaving(arguments, target, kind):
    rng = random.Random(kind.__name__ + " that leave")
    await asyncio.gather(*(send(target.server, kind(rng), 0.3) for _ in range(AT_A_TIME)))
    before = target.cpu_seconds()
    await asyncio.sleep(arguments.quiet_seconds)
    return target.cpu_seconds() - before


async def settled_memory(target):
    deadline = time.monotonic() + SETTLE_TIMEOUT
    while True:
        growth = [now - then for now, then in zip(target.memory(), target.baseline)]
        if max(growth) <= MAX_GROWTH or time.monotonic() > deadline:
            return growth
        await asyncio.sleep(0.1)


async def attack_all(arguments, server):
    await asyncio.gather(*(stream_text(server, {"prompt": [7 + i] * 1500, "max_tokens": 1}, KEY)
                           for i in range(NUM_CANARIES)))
    expected = await canaries(server)
    assert all(error is None and len(text) > 20 for text, error in expected), expected
    target = Target(server)
    total, failures = 0, []
    for kind in KINDS:
        if arguments.kinds and kind.__name__ not in arguments.kinds:
            continue
        statuses, rounds = await attack(arguments, target, kind, expected)
        busy = await cpu_after_leaving(arguments, target, kind)
        growth = await settled_memory(target)
        total += statuses.total() + AT_A_TIME
        counts = ", ".join(f"{count} x {status or 'closed'}"
                           for status, count in sorted(statuses.items(), key=str))
        print(f"{kind.__name__}: {counts}; beside {rounds} x {NUM_CANARIES} streams; CPU after "
              f"leaving {busy:.2f} s; memory of server and engine "
              f"{', '.join(f'{size / MIB:+.1f}' for size in growth)} MiB", flush=True)
        assert target.is_same(), f"{kind.__name__}: a process was started again"
        if busy > 1:
            failures.append(f"{kind.__name__}: {busy:.2f} CPU seconds for nobody")
        if max(growth) > MAX_GROWTH:
            failures.append(f"{kind.__name__}: {max(growth) / MIB:.1f} MiB more")
    await asyncio.sleep(1)
    left_open = target.num_descriptors() - target.descriptors
    print(f"{total} requests; {left_open} descriptors left open; {len(failures)} failures")
    if left_open > 0:
        failures.append(f"{left_open} descriptors are left open")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("atom")
    parser.add_argument("checkpoint")
    parser.add_argument("--requests", type=int, default=64, help="of each kind")
    parser.add_argument("--quiet-seconds", type=float, default=3)
    parser.add_argument("--kinds", nargs="*")
    arguments = parser.parse_args()
    with ServerProcess(arguments.atom, arguments.checkpoint, *FLAGS,
                       env={"ATOM_API_KEY": KEY}) as server:
        failures = asyncio.run(attack_all(arguments, server))
    sys.exit("\n".join(failures) or None)


if __name__ == "__main__":
    main()
