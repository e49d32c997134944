#include "tensor/operator_trace.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace atom {

namespace {

double seconds_between(const OperatorTrace::Mark& from, const OperatorTrace::Mark& to) {
  const std::chrono::duration<double> passed =
      to.event != nullptr ? std::chrono::duration<double>(to.event->since(*from.event))
                          : to.time - from.time;
  return passed.count();
}

}  // namespace

void OperatorTrace::start(std::chrono::nanoseconds head_start) {
  if (queue_ != nullptr && head_start.count() > 0) queue_->delay(head_start);
  noted_ = {};
  is_started_ = true;
}

void OperatorTrace::mark() {
  if (spare_marks_.empty()) {
    spare_marks_.push_back({queue_ != nullptr ? queue_->create_event() : nullptr, {}});
  }
  Mark& next = noted_.marks.emplace_back(std::move(spare_marks_.back()));
  spare_marks_.pop_back();
  if (next.event != nullptr) {
    next.event->mark();
  } else {
    next.time = Clock::now();
  }
}

void OperatorTrace::begin(std::string_view op, std::string_view variant, const OperatorWork& work) {
  if (!is_started_) return;
  mark();
  noted_.runs.push_back({op, variant, work});
}

OperatorTrace::Noted OperatorTrace::end() {
  CHECK(is_started_);
  is_started_ = false;
  if (!noted_.runs.empty()) mark();
  return std::exchange(noted_, {});
}

std::vector<OperatorRun> OperatorTrace::measured(Noted noted) {
  for (size_t i = 0; i < noted.runs.size(); ++i) {
    noted.runs[i].begin = seconds_between(noted.marks[0], noted.marks[i]);
    noted.runs[i].seconds = seconds_between(noted.marks[i], noted.marks[i + 1]);
  }
  std::ranges::move(noted.marks, std::back_inserter(spare_marks_));
  return std::move(noted.runs);
}

std::vector<OperatorRun> OperatorTrace::stop() {
  Noted noted = end();
  if (queue_ != nullptr && !noted.runs.empty()) queue_->synchronize();
  return measured(std::move(noted));
}

}  // namespace atom
