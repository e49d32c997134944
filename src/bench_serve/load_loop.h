// Sends the requests of one run when they are due and reads their answers, on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "bench_serve/load_generator.h"

namespace atom::bench_serve {

inline constexpr size_t kNoIndex = SIZE_MAX;  // of a request or of a slot

// A connection, and the request that is under way on it.
struct LoadSlot {
  enum class State { kConnecting, kBusy, kIdle };
  std::unique_ptr<Connection> connection;
  AnswerReader reader;
  State state = State::kConnecting;
  // None when idle, or when the answer is there and its message is not over.
  size_t request = kNoIndex;
  size_t written = 0;
  uint32_t generation = 0;  // of the slot, so that events of a closed connection are known as such
  uint32_t watched = 0;     // epoll events
  bool was_idle = false;    // the request went out on a connection that had been idle
};

// For one run().
class LoadLoop {
 public:
  // What it is given outlives it. `schedule`: seconds from the start, ascending, one per request.
  LoadLoop(const Connector& connector,
           std::span<const PreparedRequest> requests,
           std::span<const double> schedule,
           const LoadOptions& options);

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
  std::vector<std::unique_ptr<LoadSlot>> slots_;
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

}  // namespace atom::bench_serve
