#!/usr/bin/env python3
"""atom chat at a terminal (tmux), key by key: editing, history, pastes, Ctrl-C.

usage: tests/chat_terminal_test.py ATOM SOURCE_FOLDER TMUX [unittest arguments]
"""
import os
import pathlib
import re
import shlex
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ATOM = sys.argv[1]
MODEL = pathlib.Path(sys.argv[2]) / "models" / "tldr-8m"
TMUX = sys.argv[3]
TIMEOUT = 60  # seconds
COLUMNS = 40


class Terminal:
    """A terminal in which a chat runs, until the end of a `with` block."""

    count = 0

    def __init__(self, state, *flags):
        Terminal.count += 1
        self.socket = f"atom-test-{os.getpid()}-{Terminal.count}"
        chat = shlex.join([
            "env", f"XDG_STATE_HOME={state}", "NO_COLOR=1", ATOM, "chat", str(MODEL),
            "--temperature", "0", *flags])
        # A shell says how the chat ends, because tmux misses a child's end at times. It outlives a
        # Ctrl-C that interrupts an answer.
        command = shlex.join(["sh", "-c", f"trap : INT; {chat}; echo exit code: $?."])
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(COLUMNS), "-y", "30",
                  ";", "set", "-g", "remain-on-exit", "on", ";", "respawn-pane", "-k", command)
        self.wait("you>")

    def tmux(self, *arguments):
        return subprocess.run([TMUX, "-L", self.socket, *arguments], check=True,
                              capture_output=True, text=True).stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([TMUX, "-L", self.socket, "kill-server"], capture_output=True)

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def type(self, text):
        self.tmux("send-keys", "-l", text)

    def paste(self, text):
        self.tmux("set-buffer", text)
        self.tmux("paste-buffer", "-p")

    def screen(self):
        rows = [row.rstrip() for row in self.tmux("capture-pane", "-p").split("\n")]
        return "\n".join(rows).rstrip("\n")

    def wait(self, wanted, count=1):
        """The screen once it has `wanted` so many times."""
        return self.wait_until(lambda screen: screen.count(wanted) >= count, wanted)

    def wait_for_end(self, wanted):
        return self.wait_until(lambda screen: screen.endswith(wanted), wanted)

    def wait_until(self, is_right, wanted):
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            if is_right(screen := self.screen()):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"no {wanted!r} in:\n{self.screen()}")

    def exit_code(self):
        said = re.compile(r"exit code: (\d+)\.")
        return int(said.search(self.wait_until(said.search, "exit code"))[1])

    def cursor(self):
        return tuple(map(int, self.tmux("display-message", "-p", "#{cursor_x} #{cursor_y}").split()))


class ChatTerminal(unittest.TestCase):
    def setUp(self):
        self.state = self.enterContext(tempfile.TemporaryDirectory())

    def chat(self, *flags):
        return self.enterContext(Terminal(self.state, *(flags or ("--max-tokens", "6"))))

    def test_keys_edit_the_line(self):
        terminal = self.chat()
        terminal.type("hat is tr?")
        terminal.press("Home")
        terminal.type("W")
        terminal.press("End", "Left", "Left")
        terminal.type("a")
        terminal.wait_for_end("you> What is tar?")
        self.assertEqual(terminal.cursor()[0], len("you> What is ta"))
        terminal.press("C-w")
        terminal.wait_for_end("you> What is r?")
        terminal.press("C-y", "Enter")
        screen = terminal.wait("generated: ")
        self.assertIn("you> What is tar?\natom> ", screen)
        for sequence in ("^[[", "^["):
            self.assertNotIn(sequence, screen)

    def test_long_lines_wrap(self):
        terminal = self.chat()
        text = "0123456789" * 9
        terminal.type(text)
        terminal.press("Home")
        terminal.type("X")
        shown = "you> X" + text
        rows = [shown[i:i + COLUMNS] for i in range(0, len(shown), COLUMNS)]
        terminal.wait_for_end("\n".join(rows))
        terminal.press("C-k", "BSpace")
        terminal.wait_for_end("you>")

    def test_history_lasts_across_starts(self):
        first = self.chat()
        for text in ("/clear", "/system one"):
            first.type(text)
            first.press("Enter")
        first.wait("forgotten.", 2)
        first.press("C-d")
        self.assertEqual(first.exit_code(), 0)
        file = pathlib.Path(self.state) / "atom" / "chat_history"
        self.assertEqual(file.read_text(), "/clear\n/system one\n")
        self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        second = self.chat()
        second.type("draft")
        second.press("Up", "Up")
        second.wait_for_end("you> /clear")
        second.press("Down", "Down")
        second.wait_for_end("you> draft")

    def test_lines_typed_ahead_are_sent(self):
        terminal = self.chat("--max-tokens", "300", "--ignore-eos")
        # At once: a fast machine ends the answer in a fraction of a second.
        terminal.type("tar")
        terminal.press("Enter")
        terminal.type("/clear")
        terminal.press("Enter")
        terminal.wait("The conversation is forgotten.")

    def test_no_history(self):
        terminal = self.chat("--no-history")
        terminal.type("/clear")
        terminal.press("Enter")
        terminal.wait("forgotten")
        terminal.press("Up")
        terminal.wait_for_end("you> /clear")
        self.assertEqual(list(pathlib.Path(self.state).iterdir()), [])

    def test_pastes_of_several_lines_are_one_message(self):
        terminal = self.chat()
        terminal.paste("What is\nthis:\ttar\n\x1b[31m?")
        terminal.wait_for_end("you> What is\n     this: tar\n     [31m?")
        terminal.press("Up", "Home")
        terminal.type(">")
        terminal.wait_for_end("you> What is\n     >this: tar\n     [31m?")
        self.assertNotIn("atom>", terminal.screen())
        terminal.press("Enter")
        terminal.wait_until(lambda screen: screen.endswith("\nyou>"), "the next prompt")
        self.assertEqual(terminal.screen().count("atom>"), 1)

    def test_lines_of_a_message(self):
        terminal = self.chat()
        terminal.type("one\\")
        terminal.press("Enter")
        terminal.type("two")
        terminal.press("M-Enter")
        terminal.type("three")
        terminal.press("C-j")
        terminal.type("four")
        terminal.wait_for_end("you> one\n     two\n     three\n     four")

    def test_ctrl_c_clears_then_leaves(self):
        terminal = self.chat()
        terminal.type("some text")
        terminal.wait_for_end("you> some text")
        terminal.press("C-c")
        terminal.wait_for_end("you>")
        terminal.press("C-c")
        self.assertEqual(terminal.exit_code(), 0)

    def test_ctrl_c_stops_an_answer(self):
        terminal = self.chat("--max-tokens", "1900", "--ignore-eos")
        terminal.type("tar")
        terminal.press("Enter")
        terminal.wait("atom> ")
        time.sleep(0.5)
        terminal.press("C-c")
        terminal.wait_until(lambda screen: screen.endswith("\nyou>"), "the next prompt")
        terminal.type("still here")
        terminal.wait_for_end("you> still here")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:])
