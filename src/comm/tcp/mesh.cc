#include "comm/tcp/mesh.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "comm/tcp/join_door.h"
#include "comm/tcp/join_messages.h"
#include "comm/tcp/join_socket.h"
#include "comm/tcp/tcp_communicator.h"

namespace atom {
namespace {

using std::chrono::milliseconds;

// For one exchange of messages with a process that is there.
constexpr milliseconds kAnswer{5'000};
// For all connections between processes that are all there.
constexpr milliseconds kWiring{20'000};
constexpr milliseconds kKnockEvery{200};
constexpr int kMaxProcesses = 256;

// A connection between ranks of one group, of which there are two: for data, and for the watch.
struct Wire {
  size_t group = 0;
  int low = 0;  // ranks
  int high = 0;
  bool is_watch = false;
};

// The same list at every process.
std::vector<Wire> list_wires(const std::vector<MeshGroup>& groups) {
  std::vector<Wire> wires;
  for (size_t group = 0; group < groups.size(); ++group) {
    const int size = static_cast<int>(groups[group].processes.size());
    for (int high = 0; high < size; ++high) {
      for (int low = 0; low < high; ++low) {
        wires.push_back({group, low, high, false});
        wires.push_back({group, low, high, true});
      }
    }
  }
  return wires;
}

class MeshMaker {
 public:
  MeshMaker(const MeshOptions& options, const std::vector<MeshGroup>& groups)
      : options_(options), groups_(groups), wires_(list_wires(groups)), peers_(groups.size()) {}

  Result<MeshRanks> make() {
    RETURN_IF_ERROR(check());
    const JoinPatience until = patience(options_.patience);
    for (;;) {
      const Status status = come_together(until);
      if (status.ok()) break;
      if (status.code() != StatusCode::kUnavailable || until.next_wait() <= 0) return status;
      log::warning("nodes did not come together: {}", status.message());
    }
    MeshRanks ranks(groups_.size());
    for (size_t group = 0; group < groups_.size(); ++group) {
      for (size_t rank = 0; rank < groups_[group].processes.size(); ++rank) {
        const bool is_here = groups_[group].processes[rank] == options_.process;
        ranks[group].push_back(is_here ? make_tcp_communicator(static_cast<int>(rank),
                                                               std::move(peers_[group][rank]),
                                                               groups_[group].timeout)
                                       : nullptr);
      }
    }
    return ranks;
  }

 private:
  Status come_together(const JoinPatience& until) {
    members_.clear();
    door_.reset();
    for (size_t group = 0; group < groups_.size(); ++group) {
      const size_t size = groups_[group].processes.size();
      peers_[group].clear();
      peers_[group].resize(size);
      for (std::vector<TcpPeer>& ends : peers_[group]) ends.resize(size);
    }
    RETURN_IF_ERROR(options_.process == 0 ? gather(until) : join(until));
    return wire_up();
  }

  struct Member {
    std::optional<JoinDoor::Visitor> visitor;  // none for the head itself
    Roster::Member address;
  };

  Status check() const {
    CHECK(options_.process >= 0);
    CHECK(options_.process < options_.num_processes);
    CHECK(options_.num_processes <= kMaxProcesses);
    if (options_.secret.size() >= kMinMeshSecret) return {};
    return invalid_argument("the secret of the nodes has {} bytes: take at least {}",
                            options_.secret.size(),
                            kMinMeshSecret);
  }

  JoinPatience patience(milliseconds time) const {
    return {JoinPatience::Clock::now() + time, options_.go_on};
  }

  // ---- the head ----

  Status gather(const JoinPatience& until) {
    Result<FileDescriptor> listening = listen_on(options_.address, options_.port);
    if (!listening.ok()) return invalid_argument("{}", listening.status().message());
    FileDescriptor listener = std::move(listening).value();
    ASSIGN_OR_RETURN(const Roster::Member here, local_address(listener));
    if (options_.on_listening) options_.on_listening(here.port);
    door_.emplace(std::move(listener), options_.secret);
    members_.resize(options_.num_processes);
    while (num_missing() > 0) {
      std::vector<int> sockets;
      for (const Member& member : members_) {
        if (member.visitor) sockets.push_back(member.visitor->socket.get());
      }
      if (std::optional<JoinDoor::Visitor> visitor = door_->wait(until, sockets)) {
        judge(std::move(*visitor));
      } else if (until.next_wait() <= 0) {
        return unavailable("{} of {} nodes did not come", num_missing(), options_.num_processes);
      }
      drop_gone();
    }
    return send_roster();
  }

  int num_missing() const {
    const auto count =
        std::count_if(members_.begin() + 1, members_.end(), [](const Member& member) {
          return !member.visitor.has_value();
        });
    return static_cast<int>(count);
  }

  // Members say nothing while they wait, so what can be read is an end.
  void drop_gone() {
    for (Member& member : members_) {
      if (!member.visitor) continue;
      pollfd polled{member.visitor->socket.get(), POLLIN, 0};
      if (::poll(&polled, 1, 0) > 0) member = {};
    }
  }

  void judge(JoinDoor::Visitor visitor) {
    const JoinRequest& request = visitor.request;
    JoinVerdict verdict;
    Result<Roster::Member> address = peer_address(visitor.socket);
    const auto num_processes = static_cast<uint32_t>(options_.num_processes);
    if (request.kind != JoinRequest::Kind::kMember) {
      verdict.reason = "the group it was of is over";
    } else if (request.num_processes != num_processes) {
      verdict.reason = fmt::format(
          "the head waits for {} nodes and this one for {}", num_processes, request.num_processes);
    } else if (request.process == 0 || request.process >= num_processes) {
      verdict.reason = fmt::format("there is no node {}", request.process);
    } else if (request.digest != options_.digest) {
      verdict.reason = fmt::format(
          "the head is set up as {} and this node as {}: take the same "
          "checkpoint, flags and version everywhere",
          options_.digest,
          request.digest);
    } else {
      verdict.accepted = address.ok();
    }
    const Status told = answer(visitor, verdict);
    if (!verdict.accepted) {
      log::warning("a node that knows the secret was refused: {}", verdict.reason);
    } else if (told.ok()) {
      // Who comes twice has been lost in between.
      address->port = request.port;
      log::info("node {} of {} has come from {}", request.process, num_processes, address->host);
      members_[request.process] = {std::move(visitor), *address};
    }
  }

  Status answer(const JoinDoor::Visitor& visitor, const JoinVerdict& verdict) const {
    return write_whole(
        visitor.socket, encode(verdict, options_.secret, visitor.nonces), patience(kAnswer));
  }

  Status send_roster() {
    fill_randomly(session_);
    Roster roster;
    roster.session = session_;
    for (const Member& member : members_) roster.members.push_back(member.address);
    for (const Member& member : members_) {
      if (!member.visitor) continue;
      const std::vector<uint8_t> message = encode(roster, options_.secret, member.visitor->nonces);
      RETURN_IF_ERROR(write_whole(member.visitor->socket, message, patience(kAnswer)));
    }
    return {};
  }

  // ---- the others ----

  Status join(const JoinPatience& until) {
    for (;;) {
      const Status status = try_to_join(until);
      if (status.ok() || status.code() == StatusCode::kInvalidArgument) return status;
      const int left = until.next_wait();
      if (left <= 0) return status;
      std::this_thread::sleep_for(std::min(kKnockEvery, milliseconds(left)));
    }
  }

  Status try_to_join(const JoinPatience& until) {
    JoinPatience soon = patience(kAnswer);
    soon.deadline = std::min(soon.deadline, until.deadline);
    ASSIGN_OR_RETURN(FileDescriptor socket, connect_once(options_.address, options_.port, soon));
    ASSIGN_OR_RETURN(const Roster::Member here, local_address(socket));
    // Those of a higher number connect to this one.
    ASSIGN_OR_RETURN(FileDescriptor listener, listen_on(here.host, 0));
    ASSIGN_OR_RETURN(const Roster::Member door, local_address(listener));
    JoinRequest request;
    request.process = static_cast<uint32_t>(options_.process);
    request.num_processes = static_cast<uint32_t>(options_.num_processes);
    request.port = door.port;
    request.digest = options_.digest;
    ASSIGN_OR_RETURN(const JoinNonces nonces, introduce(socket, std::move(request), soon));
    ASSIGN_OR_RETURN(const std::vector<uint8_t> message, read_join_message(socket, until));
    if (!is_proven(message, options_.secret, nonces)) return not_the_head();
    ASSIGN_OR_RETURN(Roster roster, decode_roster(message));
    if (roster.members.size() != static_cast<size_t>(options_.num_processes)) return not_the_head();
    session_ = roster.session;
    for (Roster::Member& member : roster.members) members_.push_back({std::nullopt, member});
    members_[0].address = {options_.address, options_.port};
    door_.emplace(std::move(listener), options_.secret);
    return {};
  }

  Status not_the_head() const {
    return invalid_argument("{} port {} is no atom that knows the secret of this node",
                            options_.address,
                            options_.port);
  }

  // Proves to the other end who this is, and looks at its proof.
  Result<JoinNonces> introduce(const FileDescriptor& socket,
                               JoinRequest request,
                               const JoinPatience& until) const {
    ASSIGN_OR_RETURN(const std::vector<uint8_t> greeting, read_join_message(socket, until));
    ASSIGN_OR_RETURN(const JoinChallenge challenge, decode_join_challenge(greeting));
    fill_randomly(request.nonce);
    const JoinNonces nonces{challenge.nonce, request.nonce};
    const std::vector<uint8_t> message = encode(request, options_.secret, {challenge.nonce, {}});
    RETURN_IF_ERROR(write_whole(socket, message, until));
    const Result<std::vector<uint8_t>> said = read_join_message(socket, until);
    if (!said.ok()) return said.status().with_context("the node was not let in");
    if (!is_proven(*said, options_.secret, nonces)) return not_the_head();
    ASSIGN_OR_RETURN(const JoinVerdict verdict, decode_join_verdict(*said));
    if (!verdict.accepted) return invalid_argument("the node was refused: {}", verdict.reason);
    return nonces;
  }

  // ---- all ----

  int process_of(const Wire& wire, int rank) const {
    return groups_[wire.group].processes[static_cast<size_t>(rank)];
  }

  FileDescriptor& end_of(const Wire& wire, int rank) {
    const int other = rank == wire.low ? wire.high : wire.low;
    TcpPeer& peer = peers_[wire.group][rank][other];
    return wire.is_watch ? peer.watch : peer.data;
  }

  // The process with the higher number connects, so that none waits for one that waits for it.
  Status wire_up() {
    const JoinPatience until = patience(kWiring);
    int num_awaited = 0;
    for (size_t i = 0; i < wires_.size(); ++i) {
      const Wire& wire = wires_[i];
      const int a = process_of(wire, wire.low), b = process_of(wire, wire.high);
      const int self = options_.process;
      if (a == self && b == self) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
          return resource_exhausted("no file descriptors are left");
        }
        end_of(wire, wire.low) = FileDescriptor(ends[0]);
        end_of(wire, wire.high) = FileDescriptor(ends[1]);
      } else if (std::max(a, b) == self) {
        const int rank = a == self ? wire.low : wire.high;
        ASSIGN_OR_RETURN(end_of(wire, rank),
                         connect_wire(static_cast<uint32_t>(i), std::min(a, b), until));
      } else if (std::min(a, b) == self) {
        ++num_awaited;
      }
    }
    while (num_awaited > 0) {
      std::optional<JoinDoor::Visitor> visitor = door_->wait(until);
      if (!visitor) return unavailable("{} connections of other nodes did not come", num_awaited);
      ASSIGN_OR_RETURN(const bool taken, take_wire(std::move(*visitor)));
      if (taken) --num_awaited;
    }
    door_.reset();
    return {};
  }

  Result<FileDescriptor> connect_wire(uint32_t number, int process, const JoinPatience& until) {
    const Roster::Member& address = members_[process].address;
    ASSIGN_OR_RETURN(FileDescriptor socket, connect_once(address.host, address.port, until));
    JoinRequest request;
    request.kind = JoinRequest::Kind::kWire;
    request.process = static_cast<uint32_t>(options_.process);
    request.num_processes = static_cast<uint32_t>(options_.num_processes);
    request.wire = number;
    request.session = session_;
    request.digest = options_.digest;
    const Result<JoinNonces> nonces = introduce(socket, std::move(request), until);
    // Another coming together may do better, whatever this one failed for.
    if (!nonces.ok()) return unavailable("{}", nonces.status().message());
    return socket;
  }

  Result<bool> take_wire(JoinDoor::Visitor visitor) {
    const JoinRequest& request = visitor.request;
    FileDescriptor* end = nullptr;
    if (request.kind == JoinRequest::Kind::kWire && request.session == session_ &&
        request.wire < wires_.size()) {
      const Wire& wire = wires_[request.wire];
      const int a = process_of(wire, wire.low), b = process_of(wire, wire.high);
      const bool is_ours = std::min(a, b) == options_.process && a != b;
      if (is_ours && request.process == static_cast<uint32_t>(std::max(a, b))) {
        end = &end_of(wire, a == options_.process ? wire.low : wire.high);
      }
    }
    if (end == nullptr || end->valid()) {
      if (request.kind == JoinRequest::Kind::kMember) {
        // One of those that were there was lost, or it is one too many; hanging up, it tries again.
        return unavailable("a node came while the group was formed");
      }
      (void)answer(visitor, {false, "the group is complete"});
      return false;
    }
    RETURN_IF_ERROR(answer(visitor, {true, ""}));
    *end = std::move(visitor.socket);
    return true;
  }

  const MeshOptions& options_;
  const std::vector<MeshGroup>& groups_;
  const std::vector<Wire> wires_;
  std::vector<std::vector<std::vector<TcpPeer>>> peers_;  // [group, rank of this process, rank]
  std::optional<JoinDoor> door_;
  std::vector<Member> members_;  // by process
  JoinSession session_{};
};

}  // namespace

Result<MeshRanks> form_mesh(const MeshOptions& options, const std::vector<MeshGroup>& groups) {
  return MeshMaker(options, groups).make();
}

Result<std::unique_ptr<Communicator>> join_tcp_group(const MeshOptions& options,
                                                     milliseconds timeout) {
  MeshGroup group;
  for (int process = 0; process < options.num_processes; ++process) {
    group.processes.push_back(process);
  }
  group.timeout = timeout;
  ASSIGN_OR_RETURN(MeshRanks ranks, form_mesh(options, {group}));
  return std::move(ranks.front()[static_cast<size_t>(options.process)]);
}

}  // namespace atom
