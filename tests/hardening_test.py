"""What the linker and the compiler made of the executable, against faults in memory.

usage: hardening_test.py ATOM READELF
"""

import re
import subprocess
import sys
import unittest


def readelf(*arguments):
    command = [READELF, "--wide", *arguments, ATOM]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Hardening(unittest.TestCase):
    def test_loaded_at_a_random_address(self):
        self.assertRegex(readelf("--file-header"), r"Type:\s+DYN")

    def test_stack_is_not_executable(self):
        stack = re.search(r"GNU_STACK.*?\s(\w[\w ]*?)\s+0x\w+$", readelf("--segments"), re.M)
        self.assertIsNotNone(stack)
        self.assertNotIn("E", stack.group(1))

    def test_tables_of_addresses_are_read_only(self):
        self.assertIn("GNU_RELRO", readelf("--segments"))
        self.assertRegex(readelf("--dynamic"), r"\(FLAGS(_1)?\).*\b(BIND_)?NOW\b")

    def test_stack_is_guarded_and_libc_calls_are_checked(self):
        symbols = set(re.findall(r"(__\w+_chk)(?:_fail)?@", readelf("--dyn-syms")))
        self.assertIn("__stack_chk", symbols)
        self.assertGreaterEqual(len(symbols - {"__stack_chk"}), 3, symbols)


if __name__ == "__main__":
    ATOM, READELF = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
