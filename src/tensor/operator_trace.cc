#include "tensor/operator_trace.h"

#include <utility>

#include "base/check.h"

namespace atom {

namespace {

// Longer than the host takes to launch a step of hundreds of operators.
constexpr std::chrono::milliseconds kHeadStart{20};

}  // namespace

void OperatorTrace::start() {
  if (queue_ != nullptr) queue_->delay(kHeadStart);
  runs_.clear();
  num_marks_ = 0;
  is_started_ = true;
}

void OperatorTrace::mark() {
  if (num_marks_ == marks_.size()) {
    marks_.push_back({queue_ != nullptr ? queue_->create_event() : nullptr, {}});
  }
  Mark& next = marks_[num_marks_++];
  if (next.event != nullptr) {
    next.event->mark();
  } else {
    next.time = Clock::now();
  }
}

void OperatorTrace::begin(std::string_view op, std::string_view variant, const OperatorWork& work) {
  if (!is_started_) return;
  mark();
  runs_.push_back({op, variant, work});
}

double OperatorTrace::seconds_between(const Mark& from, const Mark& to) const {
  const std::chrono::duration<double> passed =
      to.event != nullptr ? std::chrono::duration<double>(to.event->since(*from.event))
                          : to.time - from.time;
  return passed.count();
}

std::vector<OperatorRun> OperatorTrace::stop() {
  CHECK(is_started_);
  is_started_ = false;
  if (runs_.empty()) return {};
  mark();
  if (queue_ != nullptr) queue_->synchronize();
  for (size_t i = 0; i < runs_.size(); ++i) {
    runs_[i].begin = seconds_between(marks_[0], marks_[i]);
    runs_[i].seconds = seconds_between(marks_[i], marks_[i + 1]);
  }
  return std::exchange(runs_, {});
}

}  // namespace atom
