#include "cli/line_editor/key_decoder.h"

#include <gtest/gtest.h>

namespace atom::cli {
namespace {

// "U" up, "L" left, "t:x" text, "p:x" a paste, "c:x" control, "a:x" alt, ...
std::string names(KeyDecoder* decoder) {
  constexpr const char* kNames[] = {"t:",
                                    "p:",
                                    "c:",
                                    "a:",
                                    "enter",
                                    "newline",
                                    "back",
                                    "del",
                                    "L",
                                    "R",
                                    "U",
                                    "D",
                                    "home",
                                    "end",
                                    "wl",
                                    "wr"};
  std::string result;
  while (const std::optional<KeyPress> press = decoder->next()) {
    if (!result.empty()) result += ' ';
    result += kNames[static_cast<int>(press->key)];
    result += press->text;
  }
  return result;
}

std::string names(std::string_view bytes) {
  KeyDecoder decoder;
  decoder.feed(bytes);
  std::string result = names(&decoder);
  EXPECT_FALSE(decoder.is_waiting()) << bytes;
  return result;
}

TEST(KeyDecoder, KnowsTheSequencesOfTerminals) {
  EXPECT_EQ(names("\x1b[A\x1b[B\x1b[C\x1b[D"), "U D R L");
  EXPECT_EQ(names("\x1bOA\x1bOH\x1bOF"), "U home end");
  EXPECT_EQ(names("\x1b[1~\x1b[4~\x1b[3~\x1b[H\x1b[F"), "home end del home end");
  EXPECT_EQ(names("\x1b[1;5D\x1b[1;5C\x1b"
                  "b\x1b"
                  "f"),
            "wl wr wl wr");
  EXPECT_EQ(names("\r\n\x1b\r"), "enter newline newline");
  EXPECT_EQ(names("\x7f\b\x03\x04\x1a"), "back back c:c c:d c:z");
  EXPECT_EQ(names("\x1b"
                  "d"),
            "a:d");
}

TEST(KeyDecoder, ReadsCharactersWhole) {
  EXPECT_EQ(names("aä€🚀"), "t:a t:ä t:€ t:🚀");
  // Bytes that are no UTF-8, and control characters of two bytes, are none.
  EXPECT_EQ(names("a\xff\xc2\x9b"
                  "b"),
            "t:a t:b");
}

TEST(KeyDecoder, SkipsSequencesThatMeanNothing) {
  EXPECT_EQ(names("a\x1b[15~b\x1b[<0;3;4Mc\x1b[1;2Pd"), "t:a t:b t:c t:d");
  EXPECT_EQ(names("\x1b[999999999999999999999999999999999999"), "");
}

TEST(KeyDecoder, GivesPastesAsOne) {
  EXPECT_EQ(names("\x1b[200~one\r\ntwo\rthree\n\x1b[201~x"), "p:one\ntwo\nthree\n t:x");
  // Nothing in it acts as a key, and nothing of it drives the terminal.
  EXPECT_EQ(names("\x1b[200~a\x03\x1b[Ab\tc\x7f\x1b[201~"), "p:a[Ab\tc");
}

TEST(KeyDecoder, WaitsForTheRest) {
  const std::string bytes = "ä\x1b[A\x1b[200~x\ny\x1b[201~\x1b[1;5Cz";
  KeyDecoder decoder;
  std::string found;
  for (const char byte : bytes) {
    decoder.feed(std::string_view(&byte, 1));
    const std::string more = names(&decoder);
    found += more;
    if (!more.empty()) found += ' ';
  }
  EXPECT_EQ(found, "t:ä U p:x\ny wr t:z ");
}

TEST(KeyDecoder, TakesALoneEscapeForAKeyWhenToldTo) {
  KeyDecoder decoder;
  decoder.feed("\x1b");
  EXPECT_EQ(names(&decoder), "");
  EXPECT_TRUE(decoder.is_waiting());
  decoder.give_up();
  decoder.feed("a");
  EXPECT_EQ(names(&decoder), "t:a");
}

}  // namespace
}  // namespace atom::cli
