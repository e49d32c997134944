#include "tokenizer/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "tokenizer/chat_template/render_case_test.h"
#include "tokenizer/chat_template/template_traits.h"

namespace atom {
namespace {

OrderedJson json_of(std::string_view text) {
  return parse_ordered_json(text, "test").value();
}

ChatTemplate template_of(std::string_view source) {
  auto chat_template = ChatTemplate::parse(source, "test");
  EXPECT_TRUE(chat_template.ok()) << chat_template.status().message();
  return *std::move(chat_template);
}

TEST(ChatTemplate, GivesTheVariablesOfTransformers) {
  const OrderedJson messages = json_of(R"([{"role": "user", "content": "Hi"}])");
  const OrderedJson extra = json_of(R"({"thinking": true, "eos_token": "</x>", "big": 1e22})");
  ChatTemplateInput input;
  input.messages = &messages;
  input.extra = &extra;
  input.add_generation_prompt = false;
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  const ChatTemplate chat_template = template_of(
      "{{ bos_token }}{{ eos_token }} {{ tools }} {{ documents }} {{ add_generation_prompt }} "
      "{{ thinking }} {{ pad_token is defined }} {{ messages[0].content }} {{ big }}");
  EXPECT_EQ(chat_template.render(input).value(), "<s></x> None None False True False Hi 1e+22");
}

TEST(ChatTemplate, ClockIsTheCallers) {
  const OrderedJson messages = OrderedJson::array();
  ChatTemplateInput input;
  input.messages = &messages;
  std::tm now{};
  now.tm_year = 126;
  now.tm_mon = 6;
  now.tm_mday = 4;
  now.tm_hour = 12;
  now.tm_wday = 6;
  input.now = now;
  EXPECT_EQ(template_of("{{ strftime_now('%d %b %Y, %A %H:%M') }}|{{ strftime_now('') }}")
                .render(input)
                .value(),
            "04 Jul 2026, Saturday 12:00|");
}

TEST(ChatTemplate, ErrorsNameTheTemplateAndTheLine) {
  const auto parsed = ChatTemplate::parse("a\n{% if x %}\n{{ 1 + }}\n", "folder/chat.jinja");
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(parsed.status().message(),
            "chat template folder/chat.jinja, line 3: expected an expression, found the end of the "
            "tag, '}}'");
  const auto rendered =
      render_text("{# one\n #}\n{%- macro f(x) %}\n{{ x.y.z }}\n{% endmacro %}\n{{ f(d) }}");
  EXPECT_EQ(rendered.status().message(),
            "chat template test, line 4: 'dict object' has no attribute 'y'");
}

TEST(ChatTemplate, ErrorsBehindAMacroNameTheCallersLine) {
  const auto text = render_text("{% macro f() %}\n\nx\n{% endmacro %}\n{{ f() + 1 }}");
  EXPECT_NE(text.status().message().find("line 5: '+' cannot combine"), std::string::npos)
      << text.status().message();
}

TEST(ChatTemplate, UnsupportedTagsAreRefusedByName) {
  const auto parsed = ChatTemplate::parse("{% include 'x' %}", "t");
  EXPECT_EQ(parsed.status().code(), StatusCode::kUnimplemented);
}

TEST(ChatTemplate, RefusesBadInput) {
  const ChatTemplate chat_template = template_of("{{ messages }}");
  EXPECT_FALSE(chat_template.render({}).ok());
  const OrderedJson object = json_of("{}");
  const OrderedJson list = json_of("[]");
  ChatTemplateInput input;
  input.messages = &object;
  EXPECT_FALSE(chat_template.render(input).ok());
  input.messages = &list;
  input.extra = &list;
  EXPECT_FALSE(chat_template.render(input).ok());
  const OrderedJson too_big = json_of("[18446744073709551615]");
  input.extra = nullptr;
  input.messages = &too_big;
  EXPECT_NE(chat_template.render(input).status().message().find("18446744073709551615"),
            std::string::npos);
  const OrderedJson not_utf8 = OrderedJson::array({"\xff"});
  input.messages = &not_utf8;
  EXPECT_FALSE(chat_template.render(input).ok());
  EXPECT_FALSE(ChatTemplate::parse("\xff", "t").ok());
}

TEST(ChatTemplate, ManyThreadsRenderOneTemplate) {
  const ChatTemplate chat_template =
      template_of("{% for m in messages %}{{ m.content|upper }}{{ 'x' * 3 }}{% endfor %}");
  const OrderedJson messages = json_of(R"([{"content": "a"}, {"content": "b"}])");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      ChatTemplateInput input;
      input.messages = &messages;
      for (int k = 0; k < 200; ++k) EXPECT_EQ(chat_template.render(input).value(), "AxxxBxxx");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ChatTemplate, NamesOfVariables) {
  const ChatTemplate chat_template = template_of("{% if enable_thinking %}x{% endif %}");
  EXPECT_TRUE(chat_template.uses_variable("enable_thinking"));
  EXPECT_FALSE(chat_template.uses_variable("thinking"));
}

TEST(ChatTemplateTraits, OfContent) {
  const auto traits = [](std::string_view source) { return template_of(source).traits(); };
  EXPECT_FALSE(traits("{% for m in messages %}{{ m.content }}{% endfor %}").iterates_content);
  EXPECT_TRUE(traits("{% for m in messages %}{% for p in m['content'] %}{% endfor %}{% endfor %}")
                  .iterates_content);
  const ChatTemplateTraits through_macro = traits(
      "{% macro show(c) %}{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ p.text }}"
      "{% endfor %}{% endif %}{% endmacro %}"
      "{% for m in messages %}{% set body = m.content %}{{ show(body) }}{% endfor %}");
  EXPECT_TRUE(through_macro.iterates_content);
  EXPECT_TRUE(through_macro.tests_string_content);
  EXPECT_FALSE(through_macro.tests_null_content);
  EXPECT_TRUE(traits("{{ 'x' if messages[0].content is not none }}").tests_null_content);
  EXPECT_TRUE(traits("{{ 'x' if messages[0].content == none }}").tests_null_content);
  EXPECT_TRUE(traits("{{ messages[0].role == 'developer' }}").mentions_developer);
  EXPECT_FALSE(traits("developer {# 'developer' #}").mentions_developer);
}

void expect_limit(std::string_view source, std::string_view message) {
  const std::clock_t start = std::clock();
  const auto text = render_text(source);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted) << source;
  EXPECT_NE(text.status().message().find(message), std::string::npos) << text.status().message();
  EXPECT_LT(seconds, 20) << source;  // about 1 s when optimised, more with sanitizers
}

TEST(ChatTemplateLimits, Steps) {
  constexpr std::string_view kSteps = "did not end within 50000000 steps";
  expect_limit("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
               kSteps);
  expect_limit("{% set a = 'a' * 20000000 %}{{ a.rfind('b' ~ a[:9999999]) }}", kSteps);
  expect_limit(
      "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x == ns.x|list }}{% set y = [ns.x, 1] %}{{ y == [ns.x, 2] }}",
      kSteps);
}

TEST(ChatTemplateLimits, Memory) {
  constexpr std::string_view kMemory = "need more than";
  expect_limit("{{ 'a' * 10**9 }}", kMemory);
  expect_limit("{{ [1] * 10**12 }}", kMemory);
  expect_limit("{{ 'a' * 9223372036854775807 }}", kMemory);
  expect_limit(
      "{% set ns = namespace(s='ab') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      kMemory);
  expect_limit(
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
      "{% endfor %}",
      kMemory);
  expect_limit("{% set s = 'a' * 50000 %}{{ s.replace('a', s) }}", kMemory);
  expect_limit("{% set s = 'a' * 50000 %}{{ s|list|join(s) }}", kMemory);
  expect_limit("{{ 'x'.center(10**15) }}", kMemory);
  expect_limit("{{ [1]|batch(10**15, 0)|list }}", kMemory);
  expect_limit(
      "{% set ns = namespace(x=['abcdefgh']) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|string|length }}",
      kMemory);
  expect_limit(
      "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}"
      "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson(indent=60)|length }}",
      kMemory);
}

TEST(ChatTemplateLimits, Depth) {
  expect_limit("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper than 1500 levels");
  expect_limit(
      "{% set ns = namespace(x=1) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}"
      "{% endfor %}",
      "nested deeper than 100 levels");
  expect_limit("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "refers to itself");
}

TEST(ChatTemplateLimits, Syntax) {
  const auto repeat = [](std::string_view text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
  };
  expect_limit("{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}", "syntax is nested");
  expect_limit("{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}", "syntax is nested");
  expect_limit("{{ " + repeat("not ", 5000) + "1 }}", "syntax is nested");
  expect_limit("{{ " + repeat("-", 5000) + "1 }}", "syntax is nested");
  expect_limit("{{ 1" + repeat("+1", 5000) + " }}", "syntax is nested");
  expect_limit("{{ a" + repeat(".a", 5000) + " }}", "syntax is nested");
  expect_limit("{{ a" + repeat("|f", 5000) + " }}", "syntax is nested");
  expect_limit("{{ 1" + repeat(" if 1 else 1", 5000) + " }}", "syntax is nested");
  expect_limit(repeat("{% if 1 %}", 5000), "blocks are nested");
  expect_limit(repeat("x", (1 << 20) + 1), "bytes are over the limit");
  EXPECT_EQ(render_text("{{ 1" + repeat("+1", 150) + " }}").value(), "151");
  EXPECT_EQ(render_text("{{ ''" + repeat("~1", 500) + " }}").value(), repeat("1", 500));
}

TEST(ChatTemplateLimits, Output) {
  ChatTemplateLimits limits;
  limits.max_output_size = 100;
  EXPECT_EQ(render_text("{{ 'a' * 100 }}", limits).value().size(), 100u);
  EXPECT_NE(render_text("{{ 'a' * 101 }}", limits).status().message().find("longer than 100 bytes"),
            std::string::npos);
}

// Long but honest conversations fit: quadratic work over a thousand messages.
TEST(ChatTemplateLimits, LeaveRoomForLongConversations) {
  OrderedJson messages = OrderedJson::array();
  for (int i = 0; i < 1000; ++i) {
    messages.push_back(
        {{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(2000, 'x')}});
  }
  ChatTemplateInput input;
  input.messages = &messages;
  const auto text = template_of(
                        "{% set ns = namespace(text='') %}{% for m in messages %}"
                        "{% for later in messages[loop.index:] %}{% if later.role == 'tool' %}"
                        "{% endif %}{% endfor %}{% set ns.text = ns.text + m.content %}"
                        "{% endfor %}{{ ns.text }}")
                        .render(input);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->size(), 2'000'000u);
}

}  // namespace
}  // namespace atom
