"""What the tests of a GPU share: the arguments, whether there is a GPU, and running atom."""
import os
import pathlib
import subprocess
import sys

ATOM = sys.argv[1]
ROOT = pathlib.Path(sys.argv[2]).resolve()
# Where hold_memory and libgpu_fault.so are.
BINARIES = pathlib.Path(sys.argv[3] if len(sys.argv) > 3 else pathlib.Path(ATOM).parent)
TIMEOUT = 300

sys.path += [str(ROOT / "tests" / "server"), str(ROOT / "tests" / "support")]
from golden_answers import BFLOAT16_CLEAR_MARGIN, golden_cases  # noqa: E402, F401  (see above)
from server_process import ServerProcess  # noqa: E402, F401


def has_gpu():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True).stdout.startswith(b"GPU")
    except FileNotFoundError:
        return False


HAS_GPU = has_gpu()
# Where models are run; "" is nowhere.
DEVICE = os.environ.get("ATOM_TEST_DEVICE") or ("cuda" if HAS_GPU else "")


def atom(*arguments, env=None):
    return subprocess.run([ATOM, *map(str, arguments)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIMEOUT,
                          env={**os.environ, **(env or {})})


def unittest_arguments():
    return sys.argv[:1] + sys.argv[4:]
