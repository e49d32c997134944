// The connections of a run: opened, written to, read from and closed as epoll says.
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "bench_serve/load_loop.h"

namespace atom::bench_serve {
namespace {

// Reads of one connection in a row before the others get their turn.
constexpr int kReadsInARow = 4;

}  // namespace

Status LoadLoop::watch(int fd, uint32_t events, uint64_t id, int operation) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (epoll_ctl(epoll_.get(), operation, fd, &event) == 0) return {};
  return resource_exhausted("epoll: {}", std::strerror(errno));
}

void LoadLoop::set_watched(size_t index, uint32_t events) {
  LoadSlot& slot = *slots_[index];
  if (slot.watched == events) return;
  const int operation = slot.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  const uint64_t id = uint64_t{slot.generation} << 32 | index;
  const Status status = watch(slot.connection->fd(), events, id, operation);
  CHECK(status.ok());
  slot.watched = events;
}

Result<size_t> LoadLoop::open_slot() {
  ASSIGN_OR_RETURN(std::unique_ptr<Connection> connection, connector_.connect());
  if (free_slots_.empty()) {
    free_slots_.push_back(slots_.size());
    slots_.push_back(std::make_unique<LoadSlot>());
  }
  const size_t index = free_slots_.back();
  free_slots_.pop_back();
  LoadSlot& slot = *slots_[index];
  slot.connection = std::move(connection);
  slot.state = LoadSlot::State::kConnecting;
  slot.request = kNoIndex;
  slot.written = 0;
  slot.was_idle = false;
  slot.watched = 0;
  set_watched(index, EPOLLIN | EPOLLOUT);
  ++result_.num_connections;
  return index;
}

Result<size_t> LoadLoop::idle_or_new_slot() {
  while (!idle_slots_.empty()) {
    const size_t index = idle_slots_.back();
    idle_slots_.pop_back();
    LoadSlot& slot = *slots_[index];
    if (slot.connection == nullptr || slot.state != LoadSlot::State::kIdle) continue;
    slot.was_idle = true;
    return index;
  }
  return open_slot();
}

void LoadLoop::close_slot(size_t index) {
  LoadSlot& slot = *slots_[index];
  slot.connection.reset();
  ++slot.generation;
  free_slots_.push_back(index);
}

void LoadLoop::handle(uint64_t id) {
  const auto index = static_cast<size_t>(id & UINT32_MAX);
  LoadSlot& slot = *slots_[index];
  if (slot.connection == nullptr || slot.generation != id >> 32) return;
  if (slot.state == LoadSlot::State::kConnecting) {
    go_on_connecting(index);
    return;
  }
  const uint32_t generation = slot.generation;
  if (slot.request != kNoIndex && slot.written < requests_[slot.request].bytes.size()) {
    write_more(index);
    if (slot.generation != generation) return;
  }
  read_more(index);
}

void LoadLoop::go_on_connecting(size_t index) {
  LoadSlot& slot = *slots_[index];
  const IoResult result = slot.connection->finish_connecting();
  switch (result.state) {
    case IoState::kWantRead:
      set_watched(index, EPOLLIN);
      return;
    case IoState::kWantWrite:
      set_watched(index, EPOLLIN | EPOLLOUT);
      return;
    case IoState::kDone:
      slot.state = LoadSlot::State::kBusy;
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

void LoadLoop::write_more(size_t index) {
  LoadSlot& slot = *slots_[index];
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

void LoadLoop::read_more(size_t index) {
  LoadSlot& slot = *slots_[index];
  const uint32_t generation = slot.generation;
  for (int i = 0; i < kReadsInARow || slot.connection->has_pending(); ++i) {
    const IoResult result = slot.connection->read(buffer_.data(), buffer_.size());
    const double time = now();
    switch (result.state) {
      case IoState::kDone:
        if (slot.state == LoadSlot::State::kIdle) {
          close_slot(index);  // nothing was asked
          return;
        }
        live_.num_tokens -= static_cast<uint64_t>(slot.reader.num_token_events());
        slot.reader.feed({buffer_.data(), result.size}, time);
        live_.num_tokens += static_cast<uint64_t>(slot.reader.num_token_events());
        settle(index);
        if (slot.generation != generation || slot.state == LoadSlot::State::kIdle) return;
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
void LoadLoop::connection_lost(size_t index, ErrorKind kind, const std::string& message) {
  LoadSlot& slot = *slots_[index];
  const size_t request = slot.request;
  if (request == kNoIndex) {
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
    LoadSlot& other = *slots_[*fresh];
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
void LoadLoop::settle(size_t index) {
  LoadSlot& slot = *slots_[index];
  const bool sent =
      slot.request == kNoIndex || slot.written == requests_[slot.request].bytes.size();
  if (slot.reader.finished() && slot.request != kNoIndex) take_answer(index);
  if (slot.request != kNoIndex) return;
  if (slot.reader.can_reuse_connection() && sent) {
    slot.state = LoadSlot::State::kIdle;
    idle_slots_.push_back(index);
    set_watched(index, EPOLLIN);
  } else if (slot.reader.message_complete() || !sent || slot.reader.failed()) {
    close_slot(index);
  }
}

}  // namespace atom::bench_serve
