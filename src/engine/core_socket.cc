#include "engine/core_socket.h"

#include <cstdint>
#include <vector>

#include "engine/zmq_frames.h"

namespace atom {

void CoreSocket::open(zmq::context_t& context, const std::string& endpoint) {
  const MutexLock lock(&mutex_);
  socket_ = atom::bind(context, zmq::socket_type::router, endpoint);
  has_failed_ = false;
}

void CoreSocket::close() {
  const MutexLock lock(&mutex_);
  socket_.close();
}

bool CoreSocket::reach() {
  const MutexLock lock(&mutex_);
  // To abort nothing changes nothing; that it can be sent shows that the core has connected.
  if (!send_frame_to(socket_, kCoreIdentity, encode(AbortRequests{}))) return false;
  is_reachable_ = true;
  return true;
}

void CoreSocket::cut_off() {
  const MutexLock lock(&mutex_);
  is_reachable_ = false;
}

bool CoreSocket::send(const CoreRequest& request) {
  const std::vector<uint8_t> frame = encode(request);
  const MutexLock lock(&mutex_);
  if (!is_reachable_ || send_frame_to(socket_, kCoreIdentity, frame)) return true;
  has_failed_ = true;
  return false;
}

bool CoreSocket::has_failed() {
  const MutexLock lock(&mutex_);
  return has_failed_;
}

}  // namespace atom
