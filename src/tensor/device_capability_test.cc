#include "tensor/device_capability.h"

#include <gtest/gtest.h>

namespace atom {
namespace {

Status check(const char* name, int major, int minor) {
  DeviceFacts card;
  card.name = name;
  card.capability_major = major;
  card.capability_minor = minor;
  return check_capability(card);
}

TEST(DeviceCapability, TakesAmpereAndNewer) {
  for (const auto& [major, minor] : {std::pair{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 3}, {12, 0}}) {
    EXPECT_TRUE(check("a card", major, minor).ok()) << major << "." << minor;
  }
}

TEST(DeviceCapability, SaysWhatAnOldCardHasAndWhatIsNeeded) {
  EXPECT_EQ(check("Tesla V100-SXM2-16GB", 7, 0).message(),
            "Tesla V100-SXM2-16GB has compute capability 7.0; atom needs 8.0 or newer");
  for (const auto& [major, minor] : {std::pair{7, 5}, {6, 1}, {3, 5}}) {
    EXPECT_EQ(check("a card", major, minor).code(), StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace atom
