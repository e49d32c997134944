#include "base/env.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace atom {
namespace {

// The environment is read once: each case is a process of its own.
class EnvDeathTest : public testing::Test {
 protected:
  EnvDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

// Ends the process, with 0 where CUDA's cards are `devices` and some note begins with `note`.
[[noreturn]] void exit_by_devices(const std::string& devices, const std::string& note) {
  const bool has_note = note.empty() || std::ranges::any_of(env().notes, [&](const auto& text) {
                          return text.starts_with(note);
                        });
  const char* cuda = std::getenv("CUDA_VISIBLE_DEVICES");
  std::exit(has_note && cuda != nullptr && cuda == devices ? 0 : 1);
}

TEST_F(EnvDeathTest, HipsCardsStandForCudas) {
  EXPECT_EXIT(
      {
        ::unsetenv("CUDA_VISIBLE_DEVICES");
        ::setenv("HIP_VISIBLE_DEVICES", "2,3", 1);
        exit_by_devices("2,3", "HIP_VISIBLE_DEVICES=2,3 stands for CUDA_VISIBLE_DEVICES");
      },
      testing::ExitedWithCode(0),
      "");
}

TEST_F(EnvDeathTest, CudasCardsCountWhereBothAreSet) {
  EXPECT_EXIT(
      {
        ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
        ::setenv("HIP_VISIBLE_DEVICES", "2,3", 1);
        exit_by_devices("1", "HIP_VISIBLE_DEVICES=2,3 has no effect: CUDA_VISIBLE_DEVICES is 1");
      },
      testing::ExitedWithCode(0),
      "");
}

TEST_F(EnvDeathTest, NoCardsOfCudaStayNone) {
  EXPECT_EXIT(
      {
        ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
        ::setenv("HIP_VISIBLE_DEVICES", "0", 1);
        exit_by_devices("", "HIP_VISIBLE_DEVICES=0 has no effect");
      },
      testing::ExitedWithCode(0),
      "");
}

TEST_F(EnvDeathTest, SumsBetweenGpusTravelAsTheVariableSays) {
  const auto exit_with = [](const char* value) {
    ::setenv("AITER_QUICK_REDUCE_QUANTIZATION", value, 1);
    const bool has_note = std::ranges::any_of(
        env().notes, [](const auto& text) { return text.find("QUICK_REDUCE") != text.npos; });
    std::exit(has_note ? 9 : static_cast<int>(env().reduce_quantization));
  };
  EXPECT_EXIT(exit_with("NONE"), testing::ExitedWithCode(0), "^$");
  EXPECT_EXIT(exit_with("FP8"), testing::ExitedWithCode(1), "^$");
  EXPECT_EXIT(exit_with("INT4"), testing::ExitedWithCode(2), "^$");
  EXPECT_EXIT(exit_with("INT6"), testing::ExitedWithCode(0), "none of NONE, FP8 and INT4");
}

}  // namespace
}  // namespace atom
