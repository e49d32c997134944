// ZeroMQ sockets that carry one encoded message per frame. Failures of our own sockets are CHECKs;
// a context that is shut down ends a receive.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>
#include <zmq.hpp>

namespace atom {

zmq::socket_t connect(zmq::context_t& context,
                      zmq::socket_type type,
                      const std::string& endpoint,
                      const std::string& identity = "");
zmq::socket_t bind(zmq::context_t& context, zmq::socket_type type, const std::string& endpoint);

void send_frame(zmq::socket_t& socket, const std::vector<uint8_t>& frame);
// Through a ROUTER to the peer of that name; false when it is gone.
bool send_frame_to(zmq::socket_t& router,
                   const std::string& identity,
                   const std::vector<uint8_t>& frame);

// The next message's last frame; none when nothing arrives within `timeout`.
std::optional<std::vector<uint8_t>> receive_frame(
    zmq::socket_t& socket, std::chrono::milliseconds timeout = std::chrono::milliseconds(0));

// Waits up to `timeout` for messages, or for one of `fds` to be readable; negative ones are left
// out. A signal ends it early.
void wait_for_any(zmq::socket_t& socket,
                  std::initializer_list<int> fds,
                  std::chrono::milliseconds timeout);

}  // namespace atom
