#include "data/chat/jinja/template.h"

#include "autograd/base/check.h"
#include "data/chat/jinja/interpreter.h"
#include "data/chat/jinja/lexer.h"
#include "data/files/json_reader.h"

namespace focus::jinja {
namespace {

std::tm present() {
  const std::time_t seconds = std::time(nullptr);
  std::tm now{};
  localtime_r(&seconds, &now);
  return now;
}

}  // namespace

Template::Template(const std::string& source, std::string where, const Limits& limits)
    : where_(std::move(where)), limits_(limits) {
  if (source.size() > limits.source)
    fail("{}: the template has {} bytes; at most {} are read", where_, source.size(),
         limits.source);
  int line = 1;
  try {
    block_ = std::make_shared<const Block>(parse_template(normalized_source(source), line));
  } catch (const TemplateError& error) {
    fail("{}: line {}: {}", where_, line, shown_whole(error.what()));
  }
}

std::string Template::render(const nlohmann::ordered_json& variables,
                             std::optional<std::tm> now) const {
  check(variables.is_object() || variables.is_null(), "{}: its variables are a {}, not an object",
        where_, variables.type_name());
  const nlohmann::ordered_json none = nlohmann::ordered_json::object();
  std::optional<Interpreter> interpreter;
  try {
    interpreter.emplace(limits_, variables.is_null() ? none : variables, now ? *now : present());
    interpreter->run(*block_);
    return std::move(interpreter->output);
  } catch (const TemplateError& error) {
    fail("{}: line {}: {}", where_, interpreter ? interpreter->line : 1, shown_whole(error.what()));
  }
}

}  // namespace focus::jinja
