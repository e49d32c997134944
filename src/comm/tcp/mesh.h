// Processes, on one machine or several, that come together and become groups of ranks.
//
// Process 0, the head, listens at an address that all know. The others go there, prove that they
// know the secret and that they are set up alike, and are told of each other when all are there.
// Then each two of them are connected as often as their groups ask for, with the same proof. After
// that nobody listens any more. A process that was lost and comes back needs a new coming together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/communicator.h"

namespace atom {

struct MeshOptions {
  int process = 0;  // this one
  int num_processes = 1;
  // Of the head. Port 0, at the head alone: any.
  std::string address;
  uint16_t port = 0;
  std::string secret;  // kMinMeshSecret bytes or more
  std::string digest;  // what has to be the same everywhere; short
  // How long the others may take to come.
  std::chrono::milliseconds patience{60'000};
  // Asked several times a second while this waits; false ends the waiting. Null: it never does.
  std::function<bool()> go_on = nullptr;
  // Told at the head where it listens.
  std::function<void(uint16_t port)> on_listening = nullptr;
};

constexpr size_t kMinMeshSecret = 16;

// Of ranks on `processes`: rank i is one of process processes[i], which may have several.
struct MeshGroup {
  std::vector<int> processes;
  std::chrono::milliseconds timeout{};  // of its operations
};

// Of each group the communicators of this process's ranks, by rank; null for those of others.
using MeshRanks = std::vector<std::vector<std::unique_ptr<Communicator>>>;

// Comes together with the others and makes `groups`, which are the same at all processes. An
// invalid argument says what will not become better by another try: another secret, version or
// configuration.
Result<MeshRanks> form_mesh(const MeshOptions& options, const std::vector<MeshGroup>& groups);

// The same for one group with a rank on each process.
Result<std::unique_ptr<Communicator>> join_tcp_group(const MeshOptions& options,
                                                     std::chrono::milliseconds timeout);

}  // namespace atom
