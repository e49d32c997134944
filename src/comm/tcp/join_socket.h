// TCP sockets for coming together: made, connected and read with a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "comm/tcp/join_messages.h"

namespace atom {

// How long to wait: until `deadline`, and as long as `go_on`, asked several times a second, says
// so; null: it does.
struct JoinPatience {
  using Clock = std::chrono::steady_clock;

  Clock::time_point deadline;
  std::function<bool()> go_on = nullptr;

  // How long to wait before it is asked again, in milliseconds; 0: it is over.
  int next_wait() const;
};

// Listens on what `host` means, or on every address of this machine where that is none of its own
// (the name of a service, say). Port 0: any.
Result<FileDescriptor> listen_on(const std::string& host, uint16_t port);
// The numeric address of this end and of the other one.
Result<Roster::Member> local_address(const FileDescriptor& socket);
Result<Roster::Member> peer_address(const FileDescriptor& socket);

// One try. Nonblocking, without Nagle's delay, and ended by the kernel 5 s after the other machine
// is gone, as all sockets of this header.
Result<FileDescriptor> connect_once(const std::string& host,
                                    uint16_t port,
                                    const JoinPatience& patience);
void prepare_socket(const FileDescriptor& socket);

Status write_whole(const FileDescriptor& socket,
                   std::span<const uint8_t> bytes,
                   const JoinPatience& patience);
// The next message of join_messages.h, not a byte more.
Result<std::vector<uint8_t>> read_join_message(const FileDescriptor& socket,
                                               const JoinPatience& patience);

}  // namespace atom
