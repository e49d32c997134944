#!/usr/bin/env python3
"""schemathesis over the server's own OpenAPI document: no 5xx, no violation of the schema.

usage: tests/server/openapi_test.py ATOM SOURCE_FOLDER [MAX_EXAMPLES]

MAX_EXAMPLES per operation and phase, 10 unless it is given, beside what the coverage phase makes of
the document: more than 5,000 cases.
"""
import pathlib
import subprocess
import sys
import tempfile

from server_process import ServerProcess

ATOM, ROOT = sys.argv[1:3]
MAX_EXAMPLES = sys.argv[3] if len(sys.argv) > 3 else "10"
MODEL = pathlib.Path(ROOT) / "models" / "tldr-8m"
SCHEMATHESIS = pathlib.Path(sys.executable).with_name("schemathesis")

# Left out: that valid bodies are accepted. A prompt may be valid and too long for the context, and
# JSON Schema cannot say that min_tokens is at most max_tokens.
# Short answers: it is the interface that is tested. schemathesis keeps what it finds in its folder.
with tempfile.TemporaryDirectory() as folder, \
        ServerProcess(ATOM, MODEL, "--max-model-len", 64) as server:
    result = subprocess.run(
        [str(SCHEMATHESIS), "run", server.url + "/openapi.json", "--max-examples", MAX_EXAMPLES,
         "--seed", "1", "--no-color", "--generation-database", "none", "--mode", "all",
         "--exclude-checks", "positive_data_acceptance",
         "--phases", "examples,coverage,fuzzing,stateful",
         "--request-timeout", "60", "--suppress-health-check", "all"],
        capture_output=True, text=True, timeout=3600, cwd=folder)
    code = server.stop()
print(result.stdout[-20000:], result.stderr[-2000:])
sys.exit(result.returncode or code)
