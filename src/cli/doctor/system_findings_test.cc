#include "cli/doctor/system_findings.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/doctor/fake_system.h"

namespace atom::cli::doctor {
namespace {

SystemFacts good_system_facts() {
  SystemFacts facts;
  facts.distribution = "Debian";
  facts.kernel = "Linux 6";
  facts.open_files = facts.open_files_hard = 1 << 20;
  facts.cache_folder = "/cache";
  facts.cache_free = uint64_t{1} << 40;
  facts.cache_writable = true;
  facts.tmp_writable = true;
  facts.port = 8000;
  facts.codeset = "UTF-8";
  return facts;
}

TEST(SystemFindings, AGoodMachineIsOk) {
  for (const Finding& finding : judge_system(good_system_facts())) {
    EXPECT_EQ(finding.severity, Severity::kOk) << finding.name;
    EXPECT_TRUE(finding.advice.empty()) << finding.name;
  }
}

TEST(SystemFindings, NotesAndProblemsOfFiles) {
  SystemFacts facts = good_system_facts();
  facts.open_files = 1024;
  EXPECT_EQ(find(judge_system(facts), "open files").severity, Severity::kNote);
  facts.open_files = 64;
  EXPECT_EQ(find(judge_system(facts), "open files").severity, Severity::kProblem);
  facts = good_system_facts();
  facts.tmp_writable = false;
  EXPECT_EQ(find(judge_system(facts), "/tmp").severity, Severity::kNote);
}

TEST(SystemFindings, NotesWhyModelsCannotBeDownloaded) {
  SystemFacts facts = good_system_facts();
  facts.cache_free = 5 << 20;
  EXPECT_NE(find(judge_system(facts), "model cache").advice.find("larger disk"), std::string::npos);
  facts.cache_writable = false;
  EXPECT_NE(find(judge_system(facts), "model cache").advice.find("written"), std::string::npos);
  facts.cache_folder.clear();
  EXPECT_EQ(find(judge_system(facts), "model cache").severity, Severity::kNote);
}

TEST(SystemFindings, SeesThatAPortIsTaken) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(descriptor, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(descriptor, 1), 0);
  ASSERT_EQ(getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t port = ntohs(address.sin_port);

  SystemFacts facts = read_system_facts(SystemFiles(), port, "");
  EXPECT_FALSE(facts.port_error.empty());
  EXPECT_EQ(find(judge_system(facts), "port " + std::to_string(port)).severity, Severity::kNote);
  close(descriptor);
  facts = read_system_facts(SystemFiles(), port, "");
  EXPECT_EQ(facts.port_error, "");
}

TEST(SystemFindings, ReadsTheMachine) {
  const FakeSystem system(
      {{"/etc/os-release", "NAME=\"D\"\nPRETTY_NAME=\"Debian 12\"\n"}, {"/.dockerenv", ""}});
  const std::string cache = system.root() + "/no/such/cache";
  const SystemFacts facts = read_system_facts(system.files(), 0, cache);
  EXPECT_EQ(facts.distribution, "Debian 12");
  EXPECT_TRUE(facts.kernel.starts_with("Linux "));
  EXPECT_TRUE(facts.in_container);
  EXPECT_GT(facts.open_files, 0u);
  EXPECT_EQ(facts.cache_folder, cache);
  EXPECT_EQ(facts.cache_parent, system.root());
  EXPECT_TRUE(facts.cache_writable);
  EXPECT_GT(facts.cache_free, 0u);
  EXPECT_FALSE(std::filesystem::exists(cache));
}

TEST(SystemFindings, ListsVersions) {
  for (const char* name : {"atom", "libzmq", "Boost", "OpenSSL", "libcurl"}) {
    const std::string version = find(list_versions(), name).value;
    EXPECT_NE(version.find('.'), std::string::npos) << name << " " << version;
  }
}

}  // namespace
}  // namespace atom::cli::doctor
