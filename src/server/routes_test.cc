#include "server/routes.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace atom::server {
namespace {

OrderedJson document(const EngineConfig& config) {
  return OrderedJson::parse(openapi_document(OpenApiOptions(), config));
}

void check_references(const OrderedJson& json, const OrderedJson& root) {
  if (json.is_object() && json.contains("$ref")) {
    const std::string reference = json["$ref"];
    ASSERT_TRUE(reference.starts_with("#/components/")) << reference;
    EXPECT_TRUE(root.contains(OrderedJson::json_pointer(reference.substr(1)))) << reference;
  }
  if (!json.is_structured()) return;
  for (const OrderedJson& child : json) check_references(child, root);
}

TEST(Routes, AreWhatTheOpenApiDocumentDescribes) {
  EngineConfig config;
  config.profile_dir = "/profiles";
  const OrderedJson json = document(config);
  check_references(json, json);
  std::set<std::string> ids;
  for (const Route& route : routes()) {
    const std::string method = std::string(route.method) == "GET" ? "get" : "post";
    ASSERT_TRUE(json["paths"].contains(route.path)) << route.path;
    ASSERT_TRUE(json["paths"][route.path].contains(method)) << route.path;
    const OrderedJson& operation = json["paths"][route.path][method];
    EXPECT_TRUE(ids.insert(operation["operationId"]).second) << operation["operationId"];
    EXPECT_NE(operation["summary"], "");
    const bool has_body = *route.endpoint->operation.request != '\0';
    EXPECT_EQ(operation.contains("requestBody"), has_body) << route.path;
  }
  EXPECT_TRUE(ids.contains("create_chat_completion"));
}

TEST(Routes, OfProfilesExistOnlyWhereProfilesCanBeMade) {
  EXPECT_FALSE(document(EngineConfig())["paths"].contains("/start_profile"));
  EngineConfig config;
  config.profile_dir = "/profiles";
  const OrderedJson json = document(config);
  for (const char* path : {"/start_profile", "/stop_profile"}) {
    ASSERT_TRUE(json["paths"][path].contains("post")) << path;
    EXPECT_TRUE(json["paths"][path]["post"]["responses"].contains("400")) << path;
  }
}

}  // namespace
}  // namespace atom::server
