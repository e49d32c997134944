#!/usr/bin/env python3
"""Drives the executable against a model hub on this machine that has the demo model.

usage: tests/pull_test.py ATOM SOURCE_FOLDER [unittest arguments]
"""
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

ATOM = os.path.abspath(sys.argv[1])
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
NAME = "atom/tldr-8m"
COMMIT = "00112233445566778899aabbccddeeff00112233"
TIMEOUT = 300


def listing():
    siblings = []
    for path in sorted(MODEL.iterdir()):
        content = path.read_bytes()
        entry = {"rfilename": path.name, "size": len(content),
                 "blobId": hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()}
        if path.suffix == ".safetensors":
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        siblings.append(entry)
    return {"id": NAME, "sha": COMMIT, "siblings": siblings}


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    downloads = []

    def do_GET(self):
        content_prefix = f"/{NAME}/resolve/{COMMIT}/"
        path = self.path.split("?")[0]
        if path == f"/api/models/{NAME}/revision/main":
            self.reply(200, json.dumps(listing()).encode())
        elif path.startswith(content_prefix):
            name = path[len(content_prefix):]
            Hub.downloads.append(name)
            self.reply(200, (MODEL / name).read_bytes())
        else:
            self.reply(404, b"")

    def reply(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class PullTest(unittest.TestCase):
    def setUp(self):
        Hub.downloads = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.folder = tempfile.TemporaryDirectory()
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def atom(self, *args, code=0, **variables):
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("HF_", "TRANSFORMERS_"))}
        environment |= {"HF_ENDPOINT": self.endpoint, "HF_HOME": self.folder.name,
                        "no_proxy": "127.0.0.1"} | variables
        result = subprocess.run([ATOM, *args], capture_output=True, text=True, timeout=TIMEOUT,
                                env=environment, cwd=self.folder.name)
        self.assertEqual(result.returncode, code, result.stderr + result.stdout[-2000:])
        return result

    def test_pull_prints_the_folder(self):
        result = self.atom("pull", NAME)
        folder = pathlib.Path(result.stdout.rstrip("\n"))
        self.assertEqual(folder, pathlib.Path(self.folder.name) / "hub" /
                         "models--atom--tldr-8m" / "snapshots" / COMMIT)
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            self.assertEqual((folder / name).read_bytes(), (MODEL / name).read_bytes())
        self.assertRegex(result.stderr,
                         rf"^pulled {NAME}@{COMMIT[:12]}: \d+ files, [0-9.]+ MiB, [0-9.]+ MB/s → ")
        Hub.downloads = []
        again = self.atom("pull", f"{NAME}@main", "--max-connections", "1")
        self.assertEqual(again.stdout, result.stdout)
        self.assertIn("all in the cache", again.stderr)
        self.assertEqual(Hub.downloads, [])

    def test_names_stand_for_folders(self):
        args = ("--temperature", "0", "--max-tokens", "8", "--json")
        by_folder = self.atom("generate", str(MODEL), "tar", *args)
        by_name = self.atom("generate", NAME, "tar", *args)
        self.assertEqual(json.loads(by_folder.stdout)["outputs"],
                         json.loads(by_name.stdout)["outputs"])
        self.assertIn(f"downloaded {NAME} → ", by_name.stderr)
        offline = self.atom("generate", NAME, "tar", *args, HF_HUB_OFFLINE="1", HF_ENDPOINT="")
        self.assertEqual(json.loads(offline.stdout)["outputs"],
                         json.loads(by_name.stdout)["outputs"])
        self.assertIn("Qwen3ForCausalLM", self.atom("inspect", NAME).stdout)

    def test_plan_downloads_no_weights(self):
        self.atom("plan", NAME)
        self.assertIn("config.json", Hub.downloads)
        self.assertNotIn("model.safetensors", Hub.downloads)

    def test_mistakes(self):
        self.assertIn("NAME is missing", self.atom("pull", code=2).stderr)
        self.assertIn("ORGANIZATION/MODEL", self.atom("pull", "tldr-8m", code=2).stderr)
        self.assertIn("check the name", self.atom("pull", "atom/other", code=1).stderr)
        result = self.atom("inspect", "modles/tldr-8m", code=1)
        self.assertIn("no such folder, and as a model of the hub", result.stderr)
        result = self.atom("pull", f"{NAME}@v1", "--revision", "v2", code=1)
        self.assertIn("--revision another", result.stderr)
        result = self.atom("pull", NAME, code=1, HF_HUB_OFFLINE="1")
        self.assertIn("HF_HUB_OFFLINE forbids", result.stderr)
        result = self.atom("pull", NAME, code=1, HF_TOKEN="a\nb: c")
        self.assertIn("HF_TOKEN: the token has a character", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
