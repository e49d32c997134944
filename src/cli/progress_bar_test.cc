#include "cli/progress_bar.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace atom::cli {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(RenderProgress, ShowsBytesRateAndTimeLeft) {
  EXPECT_EQ(render_progress({"loading", kGiB, 4 * kGiB, 2.0}, 100),
            "loading  25% [==========                              ]"
            " 1.0 GiB / 4.0 GiB, 512.0 MiB/s, 6.00 s left");
}

TEST(RenderProgress, FitsANarrowTerminal) {
  const Progress progress{"loading", kGiB, 4 * kGiB, 2.0};
  EXPECT_EQ(render_progress(progress, 70).size(), 69u);
  EXPECT_EQ(render_progress(progress, 60),
            "loading  25%  1.0 GiB / 4.0 GiB, 512.0 MiB/s, 6.00 s left");
  EXPECT_EQ(render_progress(progress, 12), "loading  25");
  EXPECT_EQ(render_progress(progress, 0), "");
}

TEST(RenderProgress, TakesOddAmounts) {
  EXPECT_EQ(render_progress({"x", 0, 0, 0}, 50),
            "x 100% [==============================] 0 B / 0 B");
  EXPECT_EQ(render_progress({"x", 5, 4, 0}, 30), "x 100% [==========] 4 B / 4 B");
  EXPECT_EQ(render_progress({"x", 0, 4, 1}, 30), "x   0% [          ] 0 B / 4 B");
}

TEST(ProgressBar, IsSilentWithoutATerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    ProgressBar bar("loading", 100, ProgressUnit::kBytes, file);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    bar.advance(50);
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(ProgressBar, DrawsFromManyThreadsAndLeavesACleanLine) {
  int controller = -1;
  int terminal = -1;
  ASSERT_EQ(::openpty(&controller, &terminal, nullptr, nullptr, nullptr), 0);
  std::FILE* stream = ::fdopen(terminal, "w");
  ASSERT_NE(stream, nullptr);
  {
    ProgressBar bar("loading", 4000, ProgressUnit::kBytes, stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&bar] {
        for (int i = 0; i < 500; ++i) bar.advance(1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    bar.advance(2000);
    bar.finish();
    bar.advance(1);
  }
  std::string output;
  for (pollfd ready{controller, POLLIN, 0}; ::poll(&ready, 1, 100) > 0;) {
    char piece[256];
    const ssize_t size = ::read(controller, piece, sizeof(piece));
    if (size <= 0) break;
    output.append(piece, static_cast<size_t>(size));
  }
  EXPECT_NE(output.find("loading 100% "), std::string::npos) << output;
  EXPECT_TRUE(output.ends_with("\r\x1b[K")) << output;
  std::fclose(stream);
  ::close(controller);
}

}  // namespace
}  // namespace atom::cli
