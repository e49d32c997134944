// The transport between processes and machines on the CPU: stream sockets between each two ranks.
//
// Every rank sends each other rank what that one needs and adds up by itself, in the order of ranks
// (comm/reduce.h), so sums have the bits that threads of one process get (comm/local/). A short
// tensor goes whole to all; of a long one each rank sums its share and passes the result on, which
// moves as few bytes as a ring does and in two steps. A group is a node's cards or a few nodes, not
// hundreds: connections are few.
//
// Who is let in is decided before (comm/tcp/mesh.h). Bytes are not encrypted, as with NCCL and MPI:
// the network between ranks is to be one's own.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "comm/communicator.h"

namespace atom {

// What leads to another rank: two connected stream sockets.
struct TcpPeer {
  FileDescriptor data;   // of operations
  FileDescriptor watch;  // of comm/tcp/group_watch.h
};

// peers[i] leads to rank i; none at `rank`. `timeout` is what an operation waits for the others at
// most; that a rank is lost is noticed in 5 s, whatever it is. A message that is longer than what
// the kernel keeps for a connection is taken when the other rank is inside an operation.
std::unique_ptr<Communicator> make_tcp_communicator(int rank,
                                                    std::vector<TcpPeer> peers,
                                                    std::chrono::milliseconds timeout);

// All ranks of a group, for threads of one process, by pairs of sockets without a network.
std::vector<std::unique_ptr<Communicator>> make_socket_group(int size,
                                                             std::chrono::milliseconds timeout);

}  // namespace atom
