#include "comm/tcp/mesh.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp/join_messages.h"
#include "comm/tcp/join_socket.h"

namespace atom {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{20'000};

MeshOptions options_of(int process, int num_processes, uint16_t port = 0) {
  MeshOptions options;
  options.process = process;
  options.num_processes = num_processes;
  options.address = "127.0.0.1";
  options.port = port;
  options.secret = "the secret of a test";
  options.digest = "a model";
  options.patience = kLong;
  return options;
}

// A head on a thread of its own, and where it listens.
struct Head {
  explicit Head(MeshOptions options, std::vector<MeshGroup> with) : groups(std::move(with)) {
    options.on_listening = [this](uint16_t at) { listening.set_value(at); };
    result = std::async(std::launch::async, [this, options = std::move(options)] {
      return form_mesh(options, groups);
    });
    port = listening.get_future().get();
  }

  std::vector<MeshGroup> groups;
  std::promise<uint16_t> listening;
  std::future<Result<MeshRanks>> result;
  uint16_t port = 0;
};

std::vector<MeshGroup> one_group() {
  return {{{0, 1}, kLong}};
}

void send_to(uint16_t port, const std::vector<uint8_t>& bytes, bool stays = false) {
  static std::vector<FileDescriptor> staying;
  Result<FileDescriptor> socket =
      connect_once("127.0.0.1", port, {JoinPatience::Clock::now() + kLong});
  if (!socket.ok()) return;  // the door is busy: one stranger less
  ::send(socket->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (stays && staying.size() < 200) staying.push_back(std::move(*socket));
}

int32_t sum_over(Communicator* rank, int32_t mine) {
  ThreadPool pool(1);
  const Tensor x = Tensor::empty({1}, DType::kInt32);
  x.data<int32_t>()[0] = mine;
  rank->all_reduce(Stream(&pool), x);
  EXPECT_TRUE(rank->status().ok()) << rank->status().message();
  return x.data<int32_t>()[0];
}

// Two nodes with two ranks each, as two stages of two: groups within nodes and across.
TEST(Mesh, ProcessesMayHaveSeveralRanksAndGroups) {
  const std::vector<MeshGroup> groups = {
      {{0, 0, 1, 1}, kLong}, {{0, 1}, kLong}, {{1, 0}, kLong}, {{1, 1}, kLong}};
  Head head(options_of(0, 2), groups);
  Result<MeshRanks> here = form_mesh(options_of(1, 2, head.port), groups);
  Result<MeshRanks> there = head.result.get();
  ASSERT_TRUE(here.ok()) << here.status().message();
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_EQ((*there)[3][0], nullptr);
  std::vector<std::future<void>> all;
  for (size_t group = 0; group < groups.size(); ++group) {
    const std::vector<int>& processes = groups[group].processes;
    const int size = static_cast<int>(processes.size());
    for (int rank = 0; rank < size; ++rank) {
      Communicator* communicator = (processes[rank] == 0 ? *there : *here)[group][rank].get();
      ASSERT_NE(communicator, nullptr);
      EXPECT_EQ(communicator->rank(), rank);
      all.push_back(std::async(std::launch::async, [communicator, size, rank] {
        EXPECT_EQ(sum_over(communicator, 1 << rank), (1 << size) - 1);
      }));
    }
  }
  for (std::future<void>& done : all) done.wait();
}

TEST(Mesh, AnotherSecretConfigurationOrNumberOfNodesIsRefusedForGood) {
  Head head(options_of(0, 2), one_group());
  const auto refusal = [&](MeshOptions options) {
    const auto begin = std::chrono::steady_clock::now();
    const Status status = form_mesh(options, one_group()).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
    return status.message();
  };
  MeshOptions options = options_of(1, 2, head.port);
  options.secret += "?";
  EXPECT_NE(refusal(options).find("knows the secret"), std::string::npos);
  options = options_of(1, 2, head.port);
  options.digest = "another model";
  EXPECT_NE(refusal(options).find("another model"), std::string::npos);
  EXPECT_NE(refusal(options_of(1, 3, head.port)).find("2 nodes"), std::string::npos);
  EXPECT_NE(refusal(options_of(2, 3, head.port)).find("2 nodes"), std::string::npos);
  options = options_of(1, 2, head.port);
  options.secret = "short";
  EXPECT_NE(refusal(options).find("at least 16"), std::string::npos);
  // None of which harmed who knows better.
  const Result<MeshRanks> joined = form_mesh(options_of(1, 2, head.port), one_group());
  EXPECT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_TRUE(head.result.get().ok());
}

TEST(Mesh, AThousandMalformedJoinsHarmNothing) {
  Head head(options_of(0, 2), one_group());
  std::mt19937 random(16);
  for (int i = 0; i < 1000; ++i) {
    JoinRequest request;
    request.process = 1;
    request.num_processes = 2;
    request.digest = "a model";
    std::vector<uint8_t> bytes = encode(request, "the secret of a test", {});
    const int kind = i % 5;
    if (kind == 0) bytes.resize(random() % bytes.size());                 // cut, and hung up
    if (kind == 1) bytes[random() % bytes.size()] ^= 1 + random() % 255;  // a byte is another
    if (kind == 2) bytes.insert(bytes.end(), random() % 3000, 'x');
    if (kind == 3) std::generate(bytes.begin(), bytes.end(), [&] { return random(); });
    // kind 4: what was recorded of another exchange
    send_to(head.port, bytes, i % 7 == 0);
  }
  const Result<MeshRanks> joined = form_mesh(options_of(1, 2, head.port), one_group());
  EXPECT_TRUE(joined.ok()) << joined.status().message();
  EXPECT_TRUE(head.result.get().ok());
}

TEST(Mesh, ANodeThatDoesNotComeIsNotWaitedForForEver) {
  MeshOptions options = options_of(0, 2);
  options.patience = milliseconds(300);
  EXPECT_NE(form_mesh(options, one_group()).status().message().find("1 of 2 nodes"),
            std::string::npos);
  options.patience = kLong;
  options.go_on = [] { return false; };
  EXPECT_FALSE(form_mesh(options, one_group()).ok());
}

// It may have been killed in between and started again.
TEST(Mesh, ANodeMayComeAgainWhileOthersAreMissing) {
  const std::vector<MeshGroup> groups = {{{0, 1, 2}, kLong}};
  Head head(options_of(0, 3), groups);
  MeshOptions first = options_of(1, 3, head.port);
  first.patience = milliseconds(400);
  EXPECT_FALSE(form_mesh(first, groups).ok());
  const auto second = std::async(
      std::launch::async, [&] { return form_mesh(options_of(1, 3, head.port), groups).ok(); });
  EXPECT_TRUE(form_mesh(options_of(2, 3, head.port), groups).ok());
  EXPECT_TRUE(head.result.get().ok());
}

}  // namespace
}  // namespace atom
