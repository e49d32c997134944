#include "cli/bench_serve_progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/human.h"
#include "cli/terminal.h"

namespace atom::cli {
namespace {

constexpr double kRateInterval = 1;  // seconds

}  // namespace

std::string render_load(const bench_serve::LiveFigures& before,
                        const bench_serve::LiveFigures& now,
                        int width) {
  std::string line = fmt::format("{} of {} done, {} in flight",
                                 now.num_finished,
                                 now.num_requests,
                                 now.num_started - now.num_finished);
  if (now.num_failed > 0) line += fmt::format(", {} failed", now.num_failed);
  if (const double seconds = now.elapsed - before.elapsed; seconds > 0) {
    line +=
        fmt::format(", {:.1f} req/s, {} tok/s",
                    static_cast<double>(now.num_finished - before.num_finished) / seconds,
                    human_count(static_cast<double>(now.num_tokens - before.num_tokens) / seconds));
  }
  if (now.num_finished > 0) {
    const double left = static_cast<double>(now.num_requests - now.num_finished) * now.elapsed /
                        static_cast<double>(now.num_finished);
    line += fmt::format(", about {} left", human_duration(left));
  }
  // One column stays free: some terminals wrap when the last one is written.
  return line.substr(0, static_cast<size_t>(std::max(width - 1, 0)));
}

BenchServeProgress::BenchServeProgress(bool enabled, std::FILE* stream)
    : stream_(stream), visible_(enabled && is_terminal(stream)) {}

void BenchServeProgress::show(const bench_serve::LiveFigures& figures) {
  if (!visible_) return;
  if (figures.elapsed - last_.elapsed >= kRateInterval) {
    before_ = last_;
    last_ = figures;
  }
  shown_ = true;
  fmt::print(stream_, "\r{}\x1b[K", render_load(before_, figures, terminal_width(stream_)));
  std::fflush(stream_);
}

void BenchServeProgress::finish() {
  if (!shown_) return;
  shown_ = false;
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
}

}  // namespace atom::cli
