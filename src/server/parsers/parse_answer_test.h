// Runs a parser over an answer cut into pieces and adds up what it gives out.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/parsers/output_parser.h"

namespace atom::server {

struct ParsedCall {
  std::string name;
  std::string arguments;
  std::string id;
};

struct ParsedAnswer {
  std::string reasoning;
  std::string content;
  std::vector<ParsedCall> calls;
};

// For messages of failed tests, and to compare with.
std::string to_string(const ParsedAnswer& answer);

// What every request of these tests offers.
const OrderedJson& test_tools();

struct ParseSetup {
  const OutputFormat* format;
  std::string prompt_tail;
  const OrderedJson* tools = &test_tools();
};

// Checks the order of deltas on the way.
ParsedAnswer parse_pieces(const ParseSetup& setup, const std::vector<std::string_view>& pieces);
// Whole, and checks that every cut in two, single bytes and random pieces come to the same.
ParsedAnswer parse_in_every_way(const ParseSetup& setup, std::string_view text);

std::unique_ptr<OutputFormat> format_named(const std::string& tools, const std::string& reasoning);

}  // namespace atom::server
