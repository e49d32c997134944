#include "cli/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/human.h"
#include "cli/terminal.h"

namespace atom::cli {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
constexpr size_t kMaxBarWidth = 40;
constexpr size_t kMinBarWidth = 10;

std::string human_amount(double amount, ProgressUnit unit) {
  return unit == ProgressUnit::kBytes ? human_bytes(static_cast<int64_t>(amount))
                                      : human_count(amount);
}

}  // namespace

std::string render_progress(const Progress& progress, int width) {
  const double total = static_cast<double>(progress.total);
  const double done = std::min(static_cast<double>(progress.done), total);
  const double fraction = progress.total == 0 ? 1.0 : done / total;
  const double rate = progress.seconds > 0 ? done / progress.seconds : 0;

  const std::string start = fmt::format("{} {:3.0f}% ", progress.label, std::floor(fraction * 100));
  std::string end = fmt::format(
      " {} / {}", human_amount(done, progress.unit), human_amount(total, progress.unit));
  if (rate > 0) {
    end += fmt::format(", {}/s, {} left",
                       human_amount(rate, progress.unit),
                       human_duration((total - done) / rate));
  }
  // One column stays free: some terminals wrap when the last one is written.
  const size_t columns = static_cast<size_t>(std::max(width - 1, 0));
  std::string bar;
  if (columns >= start.size() + end.size() + kMinBarWidth + 2) {
    const size_t room = std::min(columns - start.size() - end.size() - 2, kMaxBarWidth);
    const size_t filled = static_cast<size_t>(fraction * static_cast<double>(room));
    bar = fmt::format("[{}{}]", std::string(filled, '='), std::string(room - filled, ' '));
  }
  return (start + bar + end).substr(0, columns);
}

ProgressBar::ProgressBar(std::string label, uint64_t total, ProgressUnit unit, std::FILE* stream)
    : label_(std::move(label)),
      total_(total),
      unit_(unit),
      stream_(stream),
      visible_(is_terminal(stream)),
      start_(Clock::now()),
      next_draw_(start_ + kRedrawInterval) {}

void ProgressBar::advance(uint64_t amount) {
  done_.fetch_add(amount, std::memory_order_relaxed);
  if (!visible_) return;
  // Whoever finds the line being drawn leaves it: the next call shows its part.
  if (!mutex_.try_lock()) return;
  const MutexLock lock(&mutex_, std::adopt_lock);
  const Clock::time_point now = Clock::now();
  if (finished_ || now < next_draw_) return;
  next_draw_ = now + kRedrawInterval;
  draw(now);
}

void ProgressBar::draw(Clock::time_point now) {
  const Progress progress{label_,
                          done_.load(std::memory_order_relaxed),
                          total_,
                          std::chrono::duration<double>(now - start_).count(),
                          unit_};
  const std::string line = render_progress(progress, terminal_width(stream_));
  fmt::print(stream_, "\r{}\x1b[K", line);
  std::fflush(stream_);
}

void ProgressBar::finish() {
  const MutexLock lock(&mutex_);
  if (finished_) return;
  finished_ = true;
  if (!visible_) return;
  std::fputs("\r\x1b[K", stream_);
  std::fflush(stream_);
}

}  // namespace atom::cli
