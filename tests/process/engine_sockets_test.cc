// The sockets between an engine and its core: what strangers write to them, and what is left.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <random>

#include "base/env.h"
#include "base/file_descriptor.h"
#include "engine/zmq_frames.h"
#include "tests/process/engine_harness_test.h"

namespace atom {
namespace {

// The folders of this process's engines.
std::vector<std::filesystem::path> socket_folders() {
  std::vector<std::filesystem::path> folders;
  const std::string& parent = env().runtime_folder;
  for (const auto& entry :
       std::filesystem::directory_iterator(parent.empty() ? "/tmp" : parent.c_str())) {
    const std::string name = entry.path().filename().string();
    const std::string prefix = "atom-engine." + std::to_string(::getpid()) + ".";
    if (name.starts_with(prefix)) folders.push_back(entry.path());
  }
  return folders;
}

void write_to_socket(const std::string& path, const std::string& bytes) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

TEST(EngineProcess, WhatOthersWriteToItsSocketsDoesNoHarm) {
  const auto engine = make_engine(demo_config(), in_child());
  ASSERT_EQ(socket_folders().size(), 1u);
  const std::string folder = socket_folders()[0].string();
  const auto request = std::make_shared<Tracked>();
  ASSERT_TRUE(submit(engine.get(), request, random(1, 200)).ok());
  std::mt19937 choose(5);
  for (int round = 0; round < 20; ++round) {
    std::string noise(choose() % 3000, '\0');
    for (char& byte : noise) byte = static_cast<char>(choose());
    write_to_socket(folder + "/requests-0", noise);
    write_to_socket(folder + "/responses-0", noise);
  }
  zmq::context_t context;
  zmq::socket_t impostor =
      atom::connect(context, zmq::socket_type::dealer, "ipc://" + folder + "/requests-0", "core-0");
  zmq::socket_t forger =
      atom::connect(context, zmq::socket_type::push, "ipc://" + folder + "/responses-0");
  for (int round = 0; round < 100; ++round) {
    std::vector<uint8_t> noise(choose() % 300);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(choose());
    send_frame(forger, noise);
    send_frame(impostor, noise);
    send_frame(forger, encode(CoreResponse(CoreReady{})));
    StepOutput step;
    step.deltas.emplace_back().id = 1000000 + round;
    step.deltas.back().finish_reason = FinishReason::kStop;
    send_frame(forger, encode(CoreResponse(step)));
  }
  ASSERT_TRUE(eventually([&] { return request->num_final == 1; }));
  EXPECT_TRUE(request->status.ok()) << request->status.message();
  EXPECT_EQ(request->num_tokens, 200);
  EXPECT_EQ(engine->health().num_restarts, 0u);
}

TEST(EngineProcess, LeavesNoFilesBehind) {
  {
    const auto engine = make_engine(demo_config(), in_child());
    EXPECT_EQ(socket_folders().size(), 1u);
    ::kill(engine->health().pid, SIGKILL);
    ASSERT_TRUE(eventually([&] { return engine->health().num_restarts == 1; }));
  }
  EXPECT_TRUE(socket_folders().empty());
  EXPECT_FALSE(LLMEngine::create(demo_config(), in_child("/bin/false")).ok());
  EXPECT_TRUE(socket_folders().empty());
}

}  // namespace
}  // namespace atom
