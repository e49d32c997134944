#include "engine/zmq_frames.h"

#include <cerrno>

#include "base/check.h"

namespace atom {
namespace {

zmq::socket_t make_socket(zmq::context_t& context, zmq::socket_type type) {
  zmq::socket_t socket(context, type);
  // Messages are bounded by admission control; dropping one would lose a request.
  socket.set(zmq::sockopt::sndhwm, 0);
  socket.set(zmq::sockopt::rcvhwm, 0);
  socket.set(zmq::sockopt::linger, 0);
  return socket;
}

bool receive_part(zmq::socket_t& socket, zmq::message_t* message) {
  for (;;) {
    try {
      return socket.recv(*message, zmq::recv_flags::dontwait).has_value();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

}  // namespace

zmq::socket_t connect(zmq::context_t& context,
                      zmq::socket_type type,
                      const std::string& endpoint,
                      const std::string& identity) {
  zmq::socket_t socket = make_socket(context, type);
  if (!identity.empty()) socket.set(zmq::sockopt::routing_id, identity);
  socket.connect(endpoint);
  return socket;
}

zmq::socket_t bind(zmq::context_t& context, zmq::socket_type type, const std::string& endpoint) {
  zmq::socket_t socket = make_socket(context, type);
  if (type == zmq::socket_type::router) socket.set(zmq::sockopt::router_mandatory, true);
  socket.bind(endpoint);
  return socket;
}

void send_frame(zmq::socket_t& socket, const std::vector<uint8_t>& frame) {
  const auto sent = socket.send(zmq::buffer(frame), zmq::send_flags::none);
  CHECK(sent.has_value());
}

bool send_frame_to(zmq::socket_t& router,
                   const std::string& identity,
                   const std::vector<uint8_t>& frame) {
  try {
    router.send(zmq::buffer(identity), zmq::send_flags::sndmore);
    router.send(zmq::buffer(frame), zmq::send_flags::none);
    return true;
  } catch (const zmq::error_t&) {
    return false;
  }
}

std::optional<std::vector<uint8_t>> receive_frame(zmq::socket_t& socket,
                                                  std::chrono::milliseconds timeout) {
  zmq::message_t message;
  do {
    if (!receive_part(socket, &message)) {
      if (timeout.count() <= 0) return std::nullopt;
      wait_for_any(socket, {}, timeout);
      if (!receive_part(socket, &message)) return std::nullopt;
    }
  } while (message.more());
  const auto* data = static_cast<const uint8_t*>(message.data());
  return std::vector<uint8_t>(data, data + message.size());
}

void wait_for_any(zmq::socket_t& socket,
                  std::initializer_list<int> fds,
                  std::chrono::milliseconds timeout) {
  std::vector<zmq_pollitem_t> items = {{socket.handle(), 0, ZMQ_POLLIN, 0}};
  for (const int fd : fds) {
    if (fd >= 0) items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
  }
  if (::zmq_poll(items.data(), static_cast<int>(items.size()), timeout.count()) < 0) {
    CHECK(::zmq_errno() == EINTR);
  }
}

}  // namespace atom
