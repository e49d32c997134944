#include "tokenizer/chat_template/chat_template.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

// No limit on time: on a slow machine it would come before the one that is looked at.
ChatTemplateLimits timeless() {
  ChatTemplateLimits limits;
  limits.max_time = std::chrono::hours(1);
  return limits;
}

void expect_limit(std::string_view source,
                  std::string_view message,
                  const ChatTemplateLimits& limits = timeless()) {
  const std::clock_t start = std::clock();
  const auto text = render_text(source, limits);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted) << source;
  EXPECT_NE(text.status().message().find(message), std::string::npos) << text.status().message();
  EXPECT_LT(seconds, 20) << source;  // about 1 s when optimized, more with sanitizers
}

TEST(ChatTemplateLimits, Steps) {
  constexpr std::string_view kSteps = "did not end within";  // so many steps, or so much time
  expect_limit("{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
               kSteps,
               {});
  EXPECT_EQ(render_text("{% set a = 'a' * 2000000 %}{{ a.rfind('b' ~ a[:999999]) }}").value(),
            "-1");
  expect_limit(
      "{% set ns = namespace(x=[1]) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x == ns.x|list }}{% set y = [ns.x, 1] %}{{ y == [ns.x, 2] }}",
      kSteps,
      {});
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

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Each repeats, on texts of megabytes, something that is cheap on short ones.
const char* const kExpensiveLoops[] = {
    "b in a",
    "b not in a",
    "a is sameas c",
    "a == c",
    "a < c",
    "a.startswith(c)",
    "a.endswith(c)",
    "a.startswith((c, c))",
    "c in [a, a]",
    "[a].index(c)",
    "[a].count(c)",
    "d[b]",
    "d.get(b)",
    "a[b]",
    "' '.join([a, b])",
    "w.strip()",
    "w.lstrip()",
    "w.rstrip()",
    "a.strip('a')",
    "w|trim",
    "a|trim('a')",
    "a.removeprefix(c)",
    "a.removesuffix(c)",
    "a.partition(b)",
    "a.rpartition(b)",
    "a.find(b)",
    "a.rfind(b)",
    "a.count(b)",
    "a.split(b)",
    "a.rsplit(b)",
    "w.split()",
    "w.rsplit()",
    "a.replace(b, '')",
    "a|replace(b, '')",
    "a|title",
    "a|upper",
    "a.lower()",
    "a.title()",
    "a|capitalize",
    "a is upper",
    "a is lower",
    "a.isalpha()",
    "a.isupper()",
    "a|wordcount",
    "a|length",
    "a[7]",
    "a[::-1]",
    "a[5:-5]",
    "a|escape",
    "a|tojson",
    "d|tojson(indent=w)",
    "l|tojson(separators=(w, w))",
    "a ~ 1",
    "a + c",
    "[a]|string",
    "a|int",
    "a|float",
    "'%s' % a",
    "'%c' % a",
    "a.center(9)",
    "a|center",
    "a|indent",
    "a.splitlines()",
    "[a, c]|sort",
    "[a, c]|unique|list",
    "[a, c]|max",
    "d|tojson(sort_keys=true)",
    "a|string",
    "strftime_now(w)",
    "l|reverse|list",
    "l[1:]",
    "l|list",
    "range(99999)",
    "dict(d)",
    "a|attr(b)",
};

TEST(ChatTemplateLimits, EveryOperationPaysForWhatItReads) {
  ChatTemplateLimits limits = timeless();
  limits.max_steps = 2'000'000;  // as much as copying 128 MB
  for (const char* const expression : kExpensiveLoops) {
    const std::string source =
        "{% set a = 'a' * 3000000 %}{% set c = 'a' * 2999999 ~ 'a' %}{% set b = 'a' * 1500000 ~ "
        "'b' "
        "%}{% set w = ' ' * 3000000 %}{% set d = {c: 1, a ~ 'x': 2} %}{% set l = ['x'] * 90000 %}"
        "{% for i in range(100000) %}{% for j in range(100000) %}{% if " +
        std::string(expression) + " %}{% endif %}{% endfor %}{% endfor %}";
    const double begin = cpu_seconds();
    const Status status = render_text(source, limits).status();
    const double seconds = cpu_seconds() - begin;
    EXPECT_FALSE(status.ok()) << expression;
    EXPECT_LT(seconds, 1.0) << expression << ": " << status.message();
  }
}

TEST(ChatTemplateLimits, Time) {
  ChatTemplateLimits limits;
  limits.max_steps = uint64_t{1} << 40;
  limits.max_time = std::chrono::milliseconds(50);
  const std::string forever =
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
  const double begin = cpu_seconds();
  const Status status = render_text(forever, limits).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("did not end within 50 ms"), std::string::npos);
  EXPECT_LT(cpu_seconds() - begin, 0.5);
}

TEST(ChatTemplateLimits, StopWhenCancelled) {
  ChatTemplateLimits limits;
  limits.max_time = std::chrono::hours(1);
  limits.max_steps = uint64_t{1} << 40;
  const auto forever = ChatTemplate::parse(
      "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
      "test",
      limits);
  const OrderedJson messages = OrderedJson::array();
  ChatTemplateInput input;
  input.messages = &messages;
  std::atomic<bool> cancelled{false};
  std::thread client([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    cancelled = true;
  });
  EXPECT_EQ(forever->render(input, &cancelled).status().code(), StatusCode::kAborted);
  client.join();
}

TEST(ChatTemplateLimits, MessagesAreShort) {
  const Status status = render_text("{{ raise_exception('\u00e4' * 1000000) }}").status();
  EXPECT_LT(status.message().size(), 3000u);
  EXPECT_GT(status.message().size(), 1900u);
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
