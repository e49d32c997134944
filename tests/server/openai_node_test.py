#!/usr/bin/env python3
"""Runs openai_node_test.mjs against a server.

usage: tests/server/openai_node_test.py ATOM SOURCE_FOLDER PACKAGE_FOLDER
"""
import pathlib
import subprocess
import sys

from server_process import ServerProcess

ATOM, ROOT, PACKAGES = sys.argv[1:4]
MODEL = pathlib.Path(ROOT) / "models" / "tldr-8m"
KEY = "a-key-of-the-test"

with ServerProcess(ATOM, MODEL, "--dtype", "float32", "--api-key", KEY) as server:
    script = pathlib.Path(__file__).with_name("openai_node_test.mjs")
    result = subprocess.run(["node", str(script), server.url + "/v1", KEY, "tldr-8m",
                             str(MODEL / "golden_text.json"), PACKAGES], timeout=600)
    code = server.stop()
sys.exit(result.returncode or code)
