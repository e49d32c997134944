#include "bench_serve/load_generator.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>

#include "base/check.h"
#include "base/file_descriptor.h"

namespace atom::bench_serve {
namespace {

constexpr size_t kNone = SIZE_MAX;
constexpr size_t kBufferSize = 256 << 10;
constexpr int kMaxEvents = 256;
// Connections made in a row before answers are looked at again.
constexpr int kStartsInARow = 8;
// Reads of one connection in a row before the others get their turn.
constexpr int kReadsInARow = 4;
constexpr uint64_t kTimerId = UINT64_MAX;
constexpr uint64_t kStopId = UINT64_MAX - 1;

struct Slot {
  enum class State { kConnecting, kBusy, kIdle };
  std::unique_ptr<Connection> connection;
  AnswerReader reader;
  State state = State::kConnecting;
  size_t request =
      kNone;  // none when idle, or when the answer is there and its message is not over
  size_t written = 0;
  uint32_t generation = 0;  // of the slot, so that events of a closed connection are known as such
  uint32_t watched = 0;     // epoll events
  bool was_idle = false;    // the request went out on a connection that had been idle
};

double thread_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Every request may need a connection of its own.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class Loop {
 public:
  Loop(const Connector& connector,
       std::span<const PreparedRequest> requests,
       std::span<const double> schedule,
       const LoadOptions& options)
      : connector_(connector),
        requests_(requests),
        schedule_(schedule),
        options_(options),
        epoll_(epoll_create1(EPOLL_CLOEXEC)),
        timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)),
        slot_of_(requests.size(), kNone),
        buffer_(kBufferSize) {
    result_.records.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      result_.records[i].scheduled = schedule[i];
      result_.records[i].prompt_len = requests[i].prompt_len;
    }
    if (options_.max_concurrency == 0) options_.max_concurrency = SIZE_MAX;
  }

  Result<LoadResult> run();

 private:
  Status watch(int fd, uint32_t events, uint64_t id, int operation);
  double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  bool start_due();
  void start_request(size_t request);
  void send_request(size_t request);
  Result<size_t> idle_or_new_slot();
  Result<size_t> open_slot();
  void close_slot(size_t index);
  void set_watched(size_t index, uint32_t events);
  void handle(uint64_t id);
  void go_on_connecting(size_t index);
  void write_more(size_t index);
  void read_more(size_t index);
  void connection_lost(size_t index, ErrorKind kind, const std::string& message);
  void settle(size_t index);
  void take_answer(size_t index);
  void finish_record(size_t request, Answer answer);
  void fail_request(size_t request, ErrorKind kind, const std::string& message);
  void expire();
  void arm_timer();
  int wait_time() const;
  void report(bool last);
  void cancel_all();

  const Connector& connector_;
  const std::span<const PreparedRequest> requests_;
  const std::span<const double> schedule_;
  LoadOptions options_;
  const FileDescriptor epoll_;
  const FileDescriptor timer_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<size_t> free_slots_;
  std::vector<size_t> idle_slots_;                   // may hold slots that are not idle any more
  std::vector<size_t> slot_of_;                      // of each request that is under way
  std::deque<std::pair<double, size_t>> deadlines_;  // ascending; finished requests included
  std::vector<char> buffer_;
  std::chrono::steady_clock::time_point start_;
  LoadResult result_;
  LiveFigures live_;
  size_t next_ = 0;  // the request to start next
  size_t num_active_ = 0;
  double slot_free_at_ = 0;  // when the limit of concurrency last let a request go
  double armed_for_ = -1;
  double next_report_ = 0;
};

Status Loop::watch(int fd, uint32_t events, uint64_t id, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
  return resource_exhausted("epoll: {}", std::strerror(errno));
}

void Loop::set_watched(size_t index, uint32_t events) {
  Slot& slot = *slots_[index];
  if (slot.watched == events) return;
  const int operation = slot.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const uint64_t id = uint64_t{slot.generation} << 32 | index;
  const Status status = watch(slot.connection->fd(), events, id, operation);
  CHECK(status.ok());
  slot.watched = events;
}

Result<size_t> Loop::open_slot() {
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, connector_.connect());
  if (free_slots_.empty()) {
    free_slots_.push_back(slots_.size());
    slots_.push_back(std::make_unique<Slot>());
  }
  const size_t index = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = *slots_[index];
  slot.connection = std::move(connection);
  slot.state = Slot::State::kConnecting;
  slot.request = kNone;
  slot.written = 0;
  slot.was_idle = false;
  slot.watched = 0;
  set_watched(index, EPOLLIN | EPOLLOUT);
  ++result_.num_connections;
  return index;
}

Result<size_t> Loop::idle_or_new_slot() {
  while (!idle_slots_.empty()) {
    const size_t index = idle_slots_.back();
    idle_slots_.pop_back();
    Slot& slot = *slots_[index];
    if (slot.connection == nullptr || slot.state != Slot::State::kIdle) continue;
    slot.was_idle = true;
    return index;
  }
  return open_slot();
}

void Loop::close_slot(size_t index) {
  Slot& slot = *slots_[index];
  slot.connection.reset();
  ++slot.generation;
  free_slots_.push_back(index);
}

// Starts what is due; whether more could be started at once.
bool Loop::start_due() {
  for (int i = 0; i < kStartsInARow; ++i) {
    if (next_ >= requests_.size() || num_active_ >= options_.max_concurrency) return false;
    if (schedule_[next_] > now()) return false;
    start_request(next_++);
  }
  return true;
}

void Loop::start_request(size_t request) {
  RequestRecord& record = result_.records[request];
  record.start = now();
  record.lateness = record.start - std::max(record.scheduled, slot_free_at_);
  ++num_active_;
  ++live_.num_started;
  deadlines_.emplace_back(record.start + options_.timeout, request);
  send_request(request);
}

void Loop::send_request(size_t request) {
  const Result<size_t> index = idle_or_new_slot();
  if (!index.ok()) {
    fail_request(request, ErrorKind::kConnect, index.status().message());
    return;
  }
  Slot& slot = *slots_[*index];
  slot.request = request;
  slot.written = 0;
  slot.reader.start(requests_[request].streamed);
  slot_of_[request] = *index;
  if (slot.state == Slot::State::kConnecting) return;
  slot.state = Slot::State::kBusy;
  write_more(*index);
}

void Loop::handle(uint64_t id) {
  const auto index = static_cast<size_t>(id & UINT32_MAX);
  Slot& slot = *slots_[index];
  if (slot.connection == nullptr || slot.generation != id >> 32) return;
  if (slot.state == Slot::State::kConnecting) {
    go_on_connecting(index);
    return;
  }
  const uint32_t generation = slot.generation;
  if (slot.request != kNone && slot.written < requests_[slot.request].bytes.size()) {
    write_more(index);
    if (slot.generation != generation) return;
  }
  read_more(index);
}

void Loop::go_on_connecting(size_t index) {
  Slot& slot = *slots_[index];
  const IoResult result = slot.connection->finish_connecting();
  switch (result.state) {
    case IoState::kWantRead:
      set_watched(index, EPOLLIN);
      return;
    case IoState::kWantWrite:
      set_watched(index, EPOLLIN | EPOLLOUT);
      return;
    case IoState::kDone:
      slot.state = Slot::State::kBusy;
      write_more(index);
      return;
    case IoState::kEnd:
    case IoState::kFailed: {
      const size_t request = slot.request;
      const std::string message = slot.connection->error();
      close_slot(index);
      fail_request(request, ErrorKind::kConnect, message);
      return;
    }
  }
}

void Loop::write_more(size_t index) {
  Slot& slot = *slots_[index];
  const std::string_view bytes = requests_[slot.request].bytes;
  while (slot.written < bytes.size()) {
    const IoResult result = slot.connection->write(bytes.substr(slot.written));
    if (result.state == IoState::kDone) {
      slot.written += result.size;
      continue;
    }
    if (result.state == IoState::kWantWrite) {
      set_watched(index, EPOLLIN | EPOLLOUT);
      return;
    }
    if (result.state == IoState::kWantRead) break;
    // The server may have answered before it closed: reading tells.
    slot.written = bytes.size();
    break;
  }
  set_watched(index, EPOLLIN);
}

void Loop::read_more(size_t index) {
  Slot& slot = *slots_[index];
  const uint32_t generation = slot.generation;
  for (int i = 0; i < kReadsInARow || slot.connection->has_pending(); ++i) {
    const IoResult result = slot.connection->read(buffer_.data(), buffer_.size());
    const double time = now();
    switch (result.state) {
      case IoState::kDone:
        if (slot.state == Slot::State::kIdle) {
          close_slot(index);  // nothing was asked
          return;
        }
        live_.num_tokens -= static_cast<uint64_t>(slot.reader.num_token_events());
        slot.reader.feed({buffer_.data(), result.size}, time);
        live_.num_tokens += static_cast<uint64_t>(slot.reader.num_token_events());
        settle(index);
        if (slot.generation != generation || slot.state == Slot::State::kIdle) return;
        if (result.size < buffer_.size() && !slot.connection->has_pending()) return;
        break;
      case IoState::kWantRead:
        return;
      case IoState::kWantWrite:
        set_watched(index, EPOLLIN | EPOLLOUT);
        return;
      case IoState::kEnd:
        connection_lost(index, ErrorKind::kCut, {});
        return;
      case IoState::kFailed:
        connection_lost(index, ErrorKind::kCut, slot.connection->error());
        return;
    }
  }
}

// `message` is empty when the server just closed the connection.
void Loop::connection_lost(size_t index, ErrorKind kind, const std::string& message) {
  Slot& slot = *slots_[index];
  const size_t request = slot.request;
  if (request == kNone) {
    close_slot(index);
    return;
  }
  if (slot.was_idle && slot.reader.untouched()) {
    // The server had given the idle connection up while the request was on its way.
    close_slot(index);
    Result<size_t> fresh = open_slot();
    if (!fresh.ok()) {
      fail_request(request, ErrorKind::kConnect, fresh.status().message());
      return;
    }
    Slot& other = *slots_[*fresh];
    other.request = request;
    other.reader.start(requests_[request].streamed);
    slot_of_[request] = *fresh;
    return;
  }
  if (message.empty()) {
    slot.reader.feed_end(now());
  } else {
    slot.reader.fail(kind, message, now());
  }
  take_answer(index);
  close_slot(index);
}

// After bytes came: takes the answer when it is there and decides about the connection.
void Loop::settle(size_t index) {
  Slot& slot = *slots_[index];
  const bool sent = slot.request == kNone || slot.written == requests_[slot.request].bytes.size();
  if (slot.reader.finished() && slot.request != kNone) take_answer(index);
  if (slot.request != kNone) return;
  if (slot.reader.can_reuse_connection() && sent) {
    slot.state = Slot::State::kIdle;
    idle_slots_.push_back(index);
    set_watched(index, EPOLLIN);
  } else if (slot.reader.message_complete() || !sent || slot.reader.failed()) {
    close_slot(index);
  }
}

void Loop::take_answer(size_t index) {
  Slot& slot = *slots_[index];
  const size_t request = slot.request;
  slot.request = kNone;
  finish_record(request, slot.reader.take_answer());
}

void Loop::finish_record(size_t request, Answer answer) {
  RequestRecord& record = result_.records[request];
  ++live_.num_finished;
  if (answer.error_kind != ErrorKind::kNone) ++live_.num_failed;
  record.answer = std::move(answer);
  result_.duration = std::max(result_.duration, record.answer.end);
  slot_of_[request] = kNone;
  if (num_active_ == options_.max_concurrency) slot_free_at_ = now();
  --num_active_;
}

void Loop::fail_request(size_t request, ErrorKind kind, const std::string& message) {
  Answer answer;
  answer.error_kind = kind;
  answer.error = message;
  answer.end = now();
  finish_record(request, std::move(answer));
}

void Loop::expire() {
  const double time = now();
  while (!deadlines_.empty()) {
    const auto [deadline, request] = deadlines_.front();
    const size_t index = slot_of_[request];
    if (index != kNone && deadline > time) return;
    deadlines_.pop_front();
    if (index == kNone) continue;
    slots_[index]->reader.fail(
        ErrorKind::kTimeout, fmt::format("no answer within {:g} s", options_.timeout), time);
    take_answer(index);
    close_slot(index);
  }
}

// The next send time, to the nanosecond, which epoll_wait() does not know.
void Loop::arm_timer() {
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
int Loop::wait_time() const {
  double until = now() + 1;
  if (options_.on_progress) until = std::min(until, next_report_);
  if (!deadlines_.empty()) until = std::min(until, deadlines_.front().first);
  return static_cast<int>(std::ceil(std::max(until - now(), 0.0) * 1000));
}

void Loop::report(bool last) {
  const double time = now();
  if (!options_.on_progress || (!last && time < next_report_)) return;
  next_report_ = time + options_.progress_interval;
  live_.elapsed = time;
  live_.num_requests = requests_.size();
  options_.on_progress(live_);
}

void Loop::cancel_all() {
  result_.interrupted = true;
  const double time = now();
  for (size_t request = 0; request < next_; ++request) {
    const size_t index = slot_of_[request];
    if (index == kNone) continue;
    slots_[index]->reader.fail(ErrorKind::kCancelled, "interrupted", time);
    take_answer(index);
  }
}

Result<LoadResult> Loop::run() {
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

}  // namespace

Result<LoadResult> run_load(const Connector& connector,
                            std::span<const PreparedRequest> requests,
                            std::span<const double> schedule,
                            const LoadOptions& options) {
  CHECK(requests.size() == schedule.size());
  raise_file_limit();
  return Loop(connector, requests, schedule, options).run();
}

}  // namespace atom::bench_serve
