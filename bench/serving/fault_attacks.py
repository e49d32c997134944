"""What attackers did: each case gives whether a build held, and what was seen."""
import concurrent.futures
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time

from fault_build import (MIB, ask, begin, cpu_seconds, error_of, memory, seconds_to_end,
                         settled_memory, wait_until)

LETTERS = bytes(byte for byte in range(33, 127) if byte not in b'"\\')
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "What is tar?"}]
# What a template has in hand, 30 MB of it, and what it does with that 10^10 times.
ONE, TWO = "{% set a = 'a' * 30000000 %}", "{% set c = 'a' * 30000000 %}"
HALF, SPACE = "{% set b = 'a' * 15000000 ~ 'b' %}", "{% set s = ' ' * 30000000 %}"
TURNS = ("{% for i in range(100000) %}{% for j in range(100000) %}"
         "{% if CONDITION %}{% endif %}{% endfor %}{% endfor %}")
OPERATIONS = ((ONE + HALF, "b in a"), (ONE + TWO, "a is sameas c"), (ONE + TWO, "a.startswith(c)"),
              (ONE + TWO, "a.endswith(c)"), (ONE + TWO, "c in [a]"),
              (ONE + TWO + "{% set d = {a: 1} %}", "d[c]"), (SPACE, "s.strip()"), (SPACE, "s|trim"),
              (ONE + TWO, "a.removeprefix(c)"), (ONE + HALF, "a.partition(b)"),
              ("{% set a = 'a' * 10000000 %}", "a|title"), ("{% set a = 'a' * 10000000 %}", "a|upper"),
              ("{% set a = 'a' * 10000000 %}", "a|tojson"))


def template(operation):
    return operation[0] + TURNS.replace("CONDITION", operation[1])


def endless_template(build):
    """A template in a request, 250 bytes, whose client leaves after 2 s."""
    with build.serve("--num-workers", 1, "--shutdown-timeout", 2) as server:
        connection = begin(server, CHAT, {
            "messages": MESSAGES, "chat_template": template(OPERATIONS[0])})
        time.sleep(2)
        connection.close()
        before = cpu_seconds(server)
        time.sleep(1)
        busy = cpu_seconds(server) - before
        metrics = ask(server, "/metrics", method="GET", timeout=2)[0]
        after = ask(server, COMPLETIONS, {"prompt": "tar", "max_tokens": 1}, timeout=2)[0]
        ended = seconds_to_end(server)
    text = (f"{busy:.2f} CPU s in the second after it left, /metrics {metrics}, a small request "
            f"{after}, SIGTERM " + ("does not end it" if ended is None else f"ends it in {ended:.1f} s"))
    return busy < 0.2 and (metrics, after) == (200, 200) and ended is not None and ended < 4, text


def template_operations(build):
    """13 operations of templates that read 30 MB at each turn, where templates are trusted."""
    ended, longest = 0, 0
    for operation in OPERATIONS:
        with build.serve("--num-workers", 1, "--trust-request-chat-template") as server:
            status, _, _ = ask(server, CHAT, {
                "messages": MESSAGES, "max_tokens": 1,
                "chat_template": template(operation)}, timeout=8)
            ended += status != "no answer"
            longest = max(longest, cpu_seconds(server))
    return (ended == len(OPERATIONS) and longest < 3,
            f"{ended} of {len(OPERATIONS)} ended within 8 s, the longest took {longest:.1f} CPU s")


def continued_message(build):
    """continue_final_message of 16 KiB, looked for in 16 MB."""
    with build.serve("--trust-request-chat-template") as server:
        before = cpu_seconds(server)
        status, _, _ = ask(server, CHAT, {
            "messages": [*MESSAGES, {"role": "assistant", "content": "a" * 16384 + "b"}],
            "chat_template": "{{ 'a' * 16000000 }}", "continue_final_message": True}, timeout=60)
        spent = cpu_seconds(server) - before
    return spent < 1, f"{status}, {spent:.2f} CPU s"


def bodies_without_a_key(build):
    """20 bodies of 30 MiB without a key, not finished."""
    with build.serve("--api-key", "secret") as server:
        before = memory(server)
        connections = []
        answers = []
        for _ in range(20):
            connection = begin(server, COMPLETIONS, b" " * (30 * MIB - 1), 30 * MIB)
            connection.settimeout(0.2)
            with contextlib.suppress(OSError):
                answers.append(connection.recv(64).split(b" ")[1].decode())
            connections.append(connection)
        growth = memory(server) - before
        for connection in connections:
            connection.close()
    return growth < 20, f"{growth:+.0f} MiB, answered before the end: {len(answers)} of 20"


def abandoned_work(build):
    """Six texts of 10 MiB to tokenize, whose clients leave at once; a small request behind them."""
    with build.serve("--num-workers", 1) as server:
        text = "tar -x " * (10 * MIB // 7)
        for _ in range(6):
            begin(server, "/tokenize", {"prompt": text}).close()
        start = time.monotonic()
        status = ask(server, COMPLETIONS, {"prompt": "tar", "max_tokens": 1}, timeout=60)[0]
        waited = time.monotonic() - start
        spent = cpu_seconds(server)
    return status == 200 and spent < 6, f"{status} after {waited:.1f} s, {spent:.1f} CPU s"


def prompt_logprobs(build):
    """prompt_logprobs of 500 tokens with n = 16."""
    with build.serve("--max-model-len", 2048) as server:
        body = json.dumps({"prompt": [7] * 500, "n": 16, "max_tokens": 1, "prompt_logprobs": 64})
        start = time.monotonic()
        status, headers, _ = ask(server, COMPLETIONS, body, timeout=120)
        seconds = time.monotonic() - start
    size = int(headers.get("Content-Length", 0))
    return (status == 200 and size < 4 * MIB,
            f"{status}, {size / 1e6:.1f} MB for {len(body)} bytes, {seconds:.1f} s")


def wide_json(build, field):
    value = b"[" + b'{"":[]},' * (19 * MIB // 8) + b"0]"
    if field == b"chat_template_kwargs":
        value = b'{"x":' + value + b"}"
    body = (b'{"messages":' + json.dumps(MESSAGES).encode() + b',"max_tokens":1,"' + field + b'":'
            + value + b"}")
    with build.serve() as server:
        before = memory(server)
        status, _, answer = ask(server, CHAT, body, timeout=120)
        peak = memory(server, "VmHWM") - before
        later = settled_memory(server, before + 50) - before
    code = error_of(answer).get("code")
    return (peak < 500 and later <= 50,
            f"{status} {code or ''}, peak {peak:+.0f} MiB, {later:+.0f} MiB 5 s later at most")


def json_of_template_arguments(build):
    """19 MiB of `{"":[]},` as chat_template_kwargs."""
    return wide_json(build, b"chat_template_kwargs")


def json_of_tools(build):
    """19 MiB of `{"":[]},` as tools."""
    return wide_json(build, b"tools")


def out_of_memory(build):
    """Texts of 29 MiB with 60 MiB of address space left."""
    with build.serve("--num-workers", 1) as server:
        pid = server.process.pid
        size = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0]) * 4096 + 60 * MIB
        resource.prlimit(pid, resource.RLIMIT_AS, (size, size))
        statuses = []
        for path in (COMPLETIONS, "/tokenize", CHAT):
            text = "a" * (29 * MIB)
            body = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {
                "prompt": text}
            statuses.append(ask(server, path, body)[0])
        time.sleep(0.2)
        code = server.process.poll()
    return code is None, f"{statuses}, " + ("it lives" if code is None else f"it ended: {code}")


def colliding_keys():
    """8192 keys of 208 characters with one std::hash, as libstdc++ has it: 13 times one of two pairs
    of blocks, of which the second pair is made to end where the first does."""
    word, multiplier, length = (1 << 64) - 1, 0xc6a4a7935bd1e995, 208
    inverse = pow(multiplier, -1, 1 << 64)
    letters = random.Random(1)

    def mixed(block):
        value = int.from_bytes(block, "little") * multiplier & word
        return (value ^ value >> 47) * multiplier & word

    def unmixed(value):
        value = value * inverse & word
        return ((value ^ value >> 47) * inverse & word).to_bytes(8, "little")

    def block():
        return bytes(letters.choices(LETTERS, k=8))

    def behind(state, first, second):
        middle = (state ^ mixed(first)) * multiplier & word
        return (middle ^ mixed(second)) * multiplier & word

    state, parts = 0xc70f6907 ^ length * multiplier & word, []
    for _ in range(13):
        first, second = block(), block()
        end = behind(state, first, second)
        while True:
            other = block()
            last = unmixed(end * inverse & word ^ (state ^ mixed(other)) * multiplier & word)
            if all(byte in LETTERS for byte in last):
                break
        assert behind(state, other, last) == end
        parts.append(((first + second).decode(), (other + last).decode()))
        state = end
    return ["".join(part[index >> bit & 1] for bit, part in enumerate(parts))
            for index in range(8192)]


def keys_that_collide(build):
    """8192 keys of one object with the same hash."""
    keys = colliding_keys()
    plain = [hashlib.sha256(key.encode()).hexdigest() * 3 + key[:16] for key in keys]
    spent = []
    for names in (keys, plain):
        with build.serve("--num-workers", 1) as server:
            before = cpu_seconds(server)
            ask(server, COMPLETIONS, {"prompt": "x", "max_tokens": 1,
                                      "metadata": {name: 0 for name in names}})
            spent.append(cpu_seconds(server) - before)
    return spent[0] < 0.3, f"{spent[0]:.2f} CPU s, other keys {spent[1]:.2f}"


def text_beyond_the_context(build):
    """A prompt of 8 MiB for a context of 2048 tokens."""
    with build.serve() as server:
        before = cpu_seconds(server)
        status, _, answer = ask(server, COMPLETIONS, {"prompt": "tar -x " * (8 * MIB // 7)})
        spent = cpu_seconds(server) - before
    return (status == 400 and spent < 0.5,
            f"{status} {error_of(answer).get('code')}, {spent:.2f} CPU s")


def engine_comes_back(server):
    engine, = server.engine_pids()
    os.kill(engine, signal.SIGKILL)
    came = wait_until(lambda: server.process.poll() is not None
                      or (server.engine_pids() not in ([], [engine])
                          and ask(server, "/readyz", method="GET")[0] == 200), 20)
    code = server.process.poll()
    if code is not None:
        return False, f"the server ended: {code}"
    return came, "the engine was started again" if came else "no engine any more"


def folder_of_sockets_removed(build):
    """The folder of sockets goes away, then the engine dies."""
    with tempfile.TemporaryDirectory(prefix="x") as parent, \
            build.serve(env={"XDG_RUNTIME_DIR": parent}) as server:
        folder, = pathlib.Path(parent).iterdir()
        shutil.rmtree(folder)
        return engine_comes_back(server)


def lock_of_sockets_removed(build):
    """A cleaner takes the file `lock` of the folder, another server starts, the engine dies."""
    with tempfile.TemporaryDirectory(prefix="x") as parent:
        environment = {"XDG_RUNTIME_DIR": parent}
        with build.serve(env=environment) as server:
            folder, = pathlib.Path(parent).iterdir()
            for file in folder.glob("lock*"):
                file.unlink()
            with build.serve(env=environment):
                stays = folder.exists()
                held, text = engine_comes_back(server)
    return held, f"the folder {'stays' if stays else 'is deleted'}; {text}"


def folder_of_another_user(build):
    """XDG_RUNTIME_DIR belongs to another user."""
    if os.geteuid() != 0:
        return True, "not tried: only root can make such a folder"
    with tempfile.TemporaryDirectory(prefix="x") as parent:
        os.chown(parent, 65534, 65534)
        with build.serve(env={"XDG_RUNTIME_DIR": parent}):
            taken = list(pathlib.Path(parent).iterdir())
    return not taken, "taken" if taken else "not taken"


def keys_of(build, folder, *lines):
    """The option for a file of keys; what they allow is left out where it means nothing."""
    path = pathlib.Path(folder) / "keys"
    path.write_text("".join(
        (line if build.has("--cache-salt-per-key") else line.split()[0]) + "\n" for line in lines))
    return "--api-key-file", path


def key(name):
    return {"Authorization": f"Bearer {name}"}


def cached_tokens_of_others(build):
    """A key asks by cached_tokens what another's prompt was."""
    with tempfile.TemporaryDirectory() as folder, \
            build.serve(*keys_of(build, folder, "a", "b"), "--cache-salt-per-key") as server:
        body = {"prompt": list(range(300, 350)), "max_tokens": 1}
        ask(server, COMPLETIONS, body, key("a"))
        usage = ask(server, COMPLETIONS, body, key("b"))[2]["usage"]
    told = usage.get("prompt_tokens_details", {}).get("cached_tokens")
    return not told, f"cached_tokens {told}"


def places_of_one_key(build):
    """One key takes all places with n = 16; a quota of 8 places where there are quotas."""
    with tempfile.TemporaryDirectory() as folder, \
            build.serve(*keys_of(build, folder, "a max_places=8", "b"), "--max-num-seqs", 4,
                        "--max-num-waiting", 12) as server, \
            concurrent.futures.ThreadPoolExecutor(1) as pool:
        body = {"prompt": "tar", "n": 16, "max_tokens": 500, "ignore_eos": True}
        first = pool.submit(ask, server, COMPLETIONS, body, key("a"))
        time.sleep(0.3)
        other = ask(server, COMPLETIONS, {"prompt": "tar", "max_tokens": 1}, key("b"))[0]
        mine = first.result()[0]
    return (mine, other) == (429, 200), f"{mine} for the one, {other} for the other key"


def priority_of_one_key(build):
    """A key sets priority to -2^31; min_priority=0 where there is such a thing."""
    with tempfile.TemporaryDirectory() as folder, \
            build.serve(*keys_of(build, folder, "a min_priority=0"), "--scheduling-policy",
                        "priority") as server:
        status = ask(server, COMPLETIONS, {"prompt": "tar", "max_tokens": 1,
                                           "priority": -2**31}, key("a"))[0]
    return status == 400, str(status)


def pages_of_others(build):
    """A page of another origin posts text/plain; to /start_profile, too."""
    evil = {"Origin": "http://evil.example", "Content-Type": "text/plain"}
    with tempfile.TemporaryDirectory() as folder, build.serve("--profile-dir", folder) as server:
        status, headers, _ = ask(server, COMPLETIONS, '{"prompt":"x","max_tokens":1}', evil)
        profile = ask(server, "/start_profile", "", {"Origin": "http://evil.example"})[0]
    allowed = headers.get("Access-Control-Allow-Origin")
    return ((status, profile, allowed) == (403, 403, None),
            f"{status} with Access-Control-Allow-Origin {allowed}, the profile {profile}")


def rebound_names(build):
    """Host: rebind.evil.example on 127.0.0.1."""
    with build.serve() as server:
        status = ask(server, COMPLETIONS, {"prompt": "x", "max_tokens": 1},
                     {"Host": "rebind.evil.example"})[0]
    return status == 403, str(status)


def weak_suites(build):
    """TLS 1.2 with AES128-SHA, AES256-SHA256 and ECDHE-RSA-AES128-SHA."""
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}" for name in ("key", "cert")]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-keyout", files[0], "-out", files[1]],
                       check=True, capture_output=True)
        with build.serve("--ssl-keyfile", files[0], "--ssl-certfile", files[1]) as server:
            for suite in ("AES128-SHA", "AES256-SHA256", "ECDHE-RSA-AES128-SHA",
                          "ECDHE-RSA-AES128-GCM-SHA256"):
                context = ssl.create_default_context()
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.maximum_version = ssl.TLSVersion.TLSv1_2
                context.set_ciphers(suite + ":@SECLEVEL=0")
                with contextlib.suppress(OSError), \
                        socket.create_connection((server.host, server.port)) as plain, \
                        context.wrap_socket(plain):
                    taken.append(suite)
    return taken == ["ECDHE-RSA-AES128-GCM-SHA256"], "takes " + ", ".join(taken)


def signals(build):
    """SIGHUP, SIGUSR1 and SIGUSR2."""
    ended = []
    for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        with build.serve() as server:
            if seconds_to_end(server, number, 0.5) is not None:
                ended.append(number.name)
    return not ended, "ended by " + ", ".join(ended) if ended else "serves on"


def hardening(build):
    """Guards of the executable."""
    def readelf(*arguments):
        return subprocess.run(["readelf", "--wide", *arguments, build.atom], check=True,
                              capture_output=True, text=True).stdout
    symbols = readelf("--dyn-syms")
    found = {"BIND_NOW": "NOW" in readelf("--dynamic"),
             "stack protector": "__stack_chk_fail" in symbols,
             "_FORTIFY_SOURCE": re.search(r"__(memcpy|snprintf|read|fprintf)_chk", symbols) is not None}
    return all(found.values()), ", ".join(
        f"{name} {'yes' if there else 'no'}" for name, there in found.items())


def control_characters_in_the_log(build):
    """U+009B, U+202E and U+2028 in a path."""
    with build.serve() as server:
        ask(server, "/%C2%9B31m%E2%80%AEx%E2%80%A8y", method="GET")
        time.sleep(0.3)
        seen = [f"U+{ord(one):04X}" for one in "\x9b\u202e\u2028" if one in server.output()]
    return not seen, "in the log: " + ", ".join(seen) if seen else "escaped"


def fifos(build):
    """A FIFO in place of config.json, tokenizer.json, generation_config.json."""
    waits = []
    for name in ("config.json", "tokenizer.json", "generation_config.json"):
        with tempfile.TemporaryDirectory() as folder:
            for file in build.checkpoint.iterdir():
                if file.name != name:
                    os.symlink(file, pathlib.Path(folder) / file.name)
            os.mkfifo(pathlib.Path(folder) / name)
            try:
                build.run("serve", folder, "--port", 0, timeout=5)
            except subprocess.TimeoutExpired:
                waits.append(name)
    return not waits, "waits for ever: " + ", ".join(waits) if waits else "refused"


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub of one model, NAME, with the files of `folder`."""
    NAME, COMMIT = "atom/tldr-8m", "00112233445566778899aabbccddeeff00112233"
    folder = None

    @staticmethod
    def blob_id(content):
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def do_GET(self):
        path = self.path.split("?")[0]
        prefix = f"/{self.NAME}/resolve/{self.COMMIT}/"
        content = b""
        if path.startswith(prefix):
            content = (self.folder / path[len(prefix):]).read_bytes()
        elif path == f"/api/models/{self.NAME}/revision/main":
            siblings = []
            for file in sorted(self.folder.iterdir()):
                data = file.read_bytes()
                siblings.append({"rfilename": file.name, "size": len(data),
                                 "blobId": self.blob_id(data)})
                if file.suffix == ".safetensors":
                    siblings[-1]["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(),
                                           "size": len(data)}
            content = json.dumps({"id": self.NAME, "sha": self.COMMIT, "siblings": siblings}).encode()
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def planted_links(build):
    """A link in the hub's cache where a download begins, to a file of the user."""
    Hub.folder = build.checkpoint
    hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=hub.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        victim = pathlib.Path(folder) / "victim"
        victim.write_text("precious")
        blobs = pathlib.Path(folder) / "hub" / ("models--" + Hub.NAME.replace("/", "--")) / "blobs"
        blobs.mkdir(parents=True)
        config = (build.checkpoint / "config.json").read_bytes()
        (blobs / (Hub.blob_id(config) + ".atom-incomplete")).symlink_to(victim)
        result = build.run("pull", Hub.NAME, env={
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_HOME": folder,
            "no_proxy": "127.0.0.1"})
        kept = victim.exists() and victim.read_text() == "precious"
    hub.shutdown()
    hub.server_close()
    return kept, f"exit code {result.returncode}, the file is {'as it was' if kept else 'overwritten'}"


def secrets_of_the_engine(build):
    """HF_TOKEN and ATOM_API_KEY in the engine's environment."""
    with build.serve(env={"HF_TOKEN": "hush", "ATOM_API_KEY": "hush"}) as server:
        engine, = server.engine_pids()
        known = b"hush" in pathlib.Path(f"/proc/{engine}/environ").read_bytes()
    return not known, "known" if known else "not there"


def descriptors(build):
    """ulimit -n 24 and 100 connections, the engine dies."""
    with tempfile.TemporaryDirectory() as folder:
        command = pathlib.Path(folder) / "atom"
        command.write_text(f'#!/bin/sh\nulimit -n 24\nexec "{build.atom}" "$@"\n')
        command.chmod(0o700)
        try:
            with build.serve(command=command) as server:
                held = [socket.create_connection((server.host, server.port)) for _ in range(100)]
                engine, = server.engine_pids()
                os.kill(engine, signal.SIGKILL)
                wait_until(lambda: server.process.poll() is not None
                           or "serves again" in server.output(), 10)
                for connection in held:
                    connection.close()
                code = server.process.poll()
        except RuntimeError as error:
            said = re.search(r"error: (.*open files.*)", str(error))
            return said is not None, f"does not start: {said[1][:80] if said else error}"
    return code is None, "serves again" if code is None else f"gives up: {code}"


def long_tokens_in_errors(build):
    """A token of 10 MB in a vocabulary that is refused."""
    with tempfile.TemporaryDirectory() as folder:
        for file in build.checkpoint.iterdir():
            if file.name != "tokenizer.json":
                os.symlink(file, pathlib.Path(folder) / file.name)
        tokenizer = json.loads((build.checkpoint / "tokenizer.json").read_text())
        tokenizer["model"]["vocab"]["a" * 10_000_000] = 300
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(tokenizer))
        result = build.run("serve", folder, "--port", 0)
    return (result.returncode != 0 and len(result.stderr) < 10_000,
            f"exit code {result.returncode}, {len(result.stderr)} bytes of errors")


CASES = (endless_template, template_operations, continued_message, bodies_without_a_key,
         abandoned_work, prompt_logprobs, json_of_template_arguments, json_of_tools, out_of_memory,
         keys_that_collide, text_beyond_the_context, folder_of_sockets_removed,
         lock_of_sockets_removed, folder_of_another_user, cached_tokens_of_others, places_of_one_key,
         priority_of_one_key, pages_of_others, rebound_names, weak_suites, signals, hardening,
         control_characters_in_the_log, fifos, planted_links, secrets_of_the_engine, descriptors,
         long_tokens_in_errors)
