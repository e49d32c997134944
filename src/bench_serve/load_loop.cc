#include "bench_serve/load_loop.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace atom::bench_serve {
namespace {

constexpr size_t kBufferSize = 256 << 10;
constexpr int kMaxEvents = 256;
// Connections made in a row before answers are looked at again.
constexpr int kStartsInARow = 8;
constexpr uint64_t kTimerId = UINT64_MAX;
constexpr uint64_t kStopId = UINT64_MAX - 1;

double thread_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

LoadLoop::LoadLoop(const Connector& connector,
                   std::span<const PreparedRequest> requests,
                   std::span<const double> schedule,
                   const LoadOptions& options)
    : connector_(connector),
      requests_(requests),
      schedule_(schedule),
      options_(options),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
      slot_of_(requests.size(), kNoIndex),
      buffer_(kBufferSize) {
  result_.records.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    result_.records[i].scheduled = schedule[i];
    result_.records[i].prompt_len = requests[i].prompt_len;
  }
  if (options_.max_concurrency == 0) options_.max_concurrency = SIZE_MAX;
}

// Starts what is due; whether more could be started at once.
bool LoadLoop::start_due() {
  for (int i = 0; i < kStartsInARow; ++i) {
    if (next_ >= requests_.size() || num_active_ >= options_.max_concurrency) return false;
    if (schedule_[next_] > now()) return false;
    start_request(next_++);
  }
  return true;
}

void LoadLoop::start_request(size_t request) {
  RequestRecord& record = result_.records[request];
  record.start = now();
  record.lateness = record.start - std::max(record.scheduled, slot_free_at_);
  ++num_active_;
  ++live_.num_started;
  deadlines_.emplace_back(record.start + options_.timeout, request);
  send_request(request);
}

void LoadLoop::send_request(size_t request) {
  const Result<size_t> index = idle_or_new_slot();
  if (!index.ok()) {
    fail_request(request, ErrorKind::kConnect, index.status().message());
    return;
  }
  LoadSlot& slot = *slots_[*index];
  slot.request = request;
  slot.written = 0;
  slot.reader.start(requests_[request].streamed);
  slot_of_[request] = *index;
  if (slot.state == LoadSlot::State::kConnecting) return;
  slot.state = LoadSlot::State::kBusy;
  write_more(*index);
}

void LoadLoop::take_answer(size_t index) {
  LoadSlot& slot = *slots_[index];
  const size_t request = slot.request;
  slot.request = kNoIndex;
  finish_record(request, slot.reader.take_answer());
}

void LoadLoop::finish_record(size_t request, Answer answer) {
  RequestRecord& record = result_.records[request];
  ++live_.num_finished;
  if (answer.error_kind != ErrorKind::kNone) ++live_.num_failed;
  record.answer = std::move(answer);
  result_.duration = std::max(result_.duration, record.answer.end);
  slot_of_[request] = kNoIndex;
  if (num_active_ == options_.max_concurrency) slot_free_at_ = now();
  --num_active_;
}

void LoadLoop::fail_request(size_t request, ErrorKind kind, const std::string& message) {
  Answer answer;
  answer.error_kind = kind;
  answer.error = message;
  answer.end = now();
  finish_record(request, std::move(answer));
}

void LoadLoop::expire() {
  const double time = now();
  while (!deadlines_.empty()) {
    const auto [deadline, request] = deadlines_.front();
    const size_t index = slot_of_[request];
    if (index != kNoIndex && deadline > time) return;
    deadlines_.pop_front();
    if (index == kNoIndex) continue;
    slots_[index]->reader.fail(
        ErrorKind::kTimeout, fmt::format("no answer within {:g} s", options_.timeout), time);
    take_answer(index);
    close_slot(index);
  }
}

// The next send time, to the nanosecond, which epoll_wait() does not know.
void LoadLoop::arm_timer() {
  if (next_ >= requests_.size() || num_active_ >= options_.max_concurrency) return;
  const double due = schedule_[next_];
  if (due == armed_for_) return;
  armed_for_ = due;
  const auto at = start_.time_since_epoch() + std::chrono::duration_cast<std::chrono::nanoseconds>(
                                                  std::chrono::duration<double>(due));
  itimerspec spec{};
  spec.it_value.tv_sec = at / std::chrono::seconds(1);
  spec.it_value.tv_nsec = (at % std::chrono::seconds(1)).count();
  timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

// Milliseconds until a report or a timeout.
int LoadLoop::wait_time() const {
  double until = now() + 1;
  if (options_.on_progress) until = std::min(until, next_report_);
  if (!deadlines_.empty()) until = std::min(until, deadlines_.front().first);
  return static_cast<int>(std::ceil(std::max(until - now(), 0.0) * 1000));
}

void LoadLoop::report(bool last) {
  const double time = now();
  if (!options_.on_progress || (!last && time < next_report_)) return;
  next_report_ = time + options_.progress_interval;
  live_.elapsed = time;
  live_.num_requests = requests_.size();
  options_.on_progress(live_);
}

void LoadLoop::cancel_all() {
  result_.interrupted = true;
  const double time = now();
  for (size_t request = 0; request < next_; ++request) {
    const size_t index = slot_of_[request];
    if (index == kNoIndex) continue;
    slots_[index]->reader.fail(ErrorKind::kCancelled, "interrupted", time);
    take_answer(index);
  }
}

Result<LoadResult> LoadLoop::run() {
  if (epoll_.get() < 0 || timer_.get() < 0) {
    return resource_exhausted("no file descriptor for the event loop: {}", std::strerror(errno));
  }
  RETURN_IF_ERROR(watch(timer_.get(), EPOLLIN, kTimerId, EPOLL_CTL_ADD));
  if (options_.stop_fd >= 0) {
    RETURN_IF_ERROR(watch(options_.stop_fd, EPOLLIN, kStopId, EPOLL_CTL_ADD));
  }
  const double cpu_before = thread_cpu_seconds();
  start_ = std::chrono::steady_clock::now();
  std::vector<epoll_event> events(kMaxEvents);
  while (live_.num_finished < requests_.size() && !result_.interrupted) {
    const bool more = start_due();
    arm_timer();
    const int ready = epoll_wait(epoll_.get(), events.data(), kMaxEvents, more ? 0 : wait_time());
    if (ready < 0 && errno != EINTR) return internal_error("epoll: {}", std::strerror(errno));
    for (int i = 0; i < ready; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kStopId) {
        cancel_all();
        break;
      }
      if (id == kTimerId) {
        uint64_t expirations = 0;
        (void)!read(timer_.get(), &expirations, sizeof expirations);
        // It may be early by a rounding error: then it is armed again.
        armed_for_ = -1;
        continue;
      }
      handle(id);
      // Answers that come in numbers do not delay what is due.
      start_due();
    }
    expire();
    report(false);
  }
  report(true);
  if (result_.interrupted) result_.duration = now();
  result_.cpu_seconds = thread_cpu_seconds() - cpu_before;
  return std::move(result_);
}

}  // namespace atom::bench_serve
