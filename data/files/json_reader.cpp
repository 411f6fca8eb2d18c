#include "data/files/json_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <type_traits>
#include <vector>

#include "autograd/base/check.h"
#include "data/files/utf8.h"

namespace focus {
namespace {

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxShown = 80;  // bytes
const nlohmann::json kNull;

std::string cut(std::string_view text) {
  if (text.size() <= kMaxShown) return std::string(text);
  std::size_t end = kMaxShown - 3;
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;  // not inside a character
  return std::string(text.substr(0, end)) + "...";
}

/// Refuses repeated keys and more than kMaxDepth levels. Of ordered JSON it keeps whole numbers
/// beyond 64 bits, which the library rounds.
template <class Json>
class StrictReader : public nlohmann::detail::json_sax_dom_parser<Json> {
 public:
  using Base = nlohmann::detail::json_sax_dom_parser<Json>;
  StrictReader(Json& json, const std::string& where) : Base(json), where_(where) {}

  bool start_object(std::size_t size) {
    enter();
    return Base::start_object(size);
  }
  bool start_array(std::size_t size) {
    enter();
    return Base::start_array(size);
  }
  bool end_object() {
    keys_.pop_back();
    return Base::end_object();
  }
  bool end_array() {
    keys_.pop_back();
    return Base::end_array();
  }
  bool key(std::string& name) {
    if (!keys_.back().insert(name).second)
      fail("{}: the key {} appears twice in one object", where_, json_quoted(name));
    return Base::key(name);
  }
  bool number_float(double value, const std::string& digits) {
    if (std::is_same_v<Json, nlohmann::json> || digits.find_first_of(".eE") != digits.npos)
      return Base::number_float(value, digits);
    nlohmann::ordered_json::binary_t exact({digits.begin(), digits.end()});
    return Base::binary(exact);
  }

 private:
  void enter() {
    keys_.emplace_back();
    if (keys_.size() > kMaxDepth) fail("{}: JSON nested deeper than {} levels", where_, kMaxDepth);
  }

  const std::string& where_;
  std::vector<std::set<std::string>> keys_;  // of every object and list that is open
};

template <class Json>
Json parse_strictly(std::string_view text, const std::string& where) {
  Json json;
  StrictReader<Json> reader(json, where);
  try {
    Json::sax_parse(text, &reader);
    return json;
  } catch (const typename Json::exception& error) {  // of its kinds 1e999 has its own
    std::string_view message = error.what();
    const std::size_t tag_end = message.find("] ");
    if (tag_end != std::string_view::npos) message.remove_prefix(tag_end + 2);
    // The library quotes what it read last, however long that is, and a wrong byte as it is.
    const std::size_t quote = message.find("last read: '");
    const std::size_t said = quote == std::string_view::npos ? message.size() : quote + 12;
    fail("{}: not valid JSON: {}{}", where, message.substr(0, said), shown(message.substr(said)));
  }
}

}  // namespace

std::string shown(std::string_view text) { return shown_whole(cut(text)); }

std::string shown_whole(std::string_view text) {
  std::string result;
  for (const char c : replace_invalid_utf8(text)) {
    if (c == '\n') {
      result += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result;
}

std::string json_quoted(std::string_view text) { return json_text(nlohmann::json(cut(text))); }

std::string shown_json(const nlohmann::json& value) { return cut(json_text(value)); }

nlohmann::json parse_strict_json(std::string_view text, const std::string& where) {
  return parse_strictly<nlohmann::json>(text, where);
}
nlohmann::ordered_json parse_ordered_json(std::string_view text, const std::string& where) {
  return parse_strictly<nlohmann::ordered_json>(text, where);
}

void for_each_row(std::string_view text,
                  const std::function<void(std::string_view row, std::size_t line)>& f) {
  for (std::size_t begin = 0, line = 1; begin < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = text.substr(begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) f(row, line);
  }
}

void JsonView::expect(bool ok, std::string_view wanted) const {
  if (!ok) fail("{}: expected {}, found {}", where_, wanted, value_->type_name());
}

JsonView JsonView::at(const std::string& key) const {
  const auto found = object().find(key);
  if (found == value_->end()) fail("{}: {} is missing", where_, json_quoted(key));
  return JsonView(*found, fmt::format("{}.{}", where_, shown(key)));
}

JsonView JsonView::get(const std::string& key) const {
  const auto found = object().find(key);
  return JsonView(found == value_->end() ? kNull : *found,
                  fmt::format("{}.{}", where_, shown(key)));
}

JsonView JsonView::item(std::size_t index) const {
  return JsonView((*value_)[index], fmt::format("{}[{}]", where_, index));
}

std::size_t JsonView::array_size() const {
  expect(value_->is_array(), "a list");
  return value_->size();
}

const nlohmann::json& JsonView::object() const {
  expect(value_->is_object(), "an object");
  return *value_;
}

const std::string& JsonView::string() const {
  expect(value_->is_string(), "a string");
  return value_->get_ref<const std::string&>();
}

bool JsonView::boolean() const {
  expect(value_->is_boolean(), "true or false");
  return value_->get<bool>();
}

bool JsonView::flag(const std::string& key, bool otherwise) const {
  const JsonView member = get(key);
  return member.is_null() ? otherwise : member.boolean();
}

double JsonView::number() const {
  expect(value_->is_number(), "a number");
  return value_->get<double>();
}

std::size_t JsonView::choice(std::span<const std::string_view> names) const {
  const auto found = std::ranges::find(names, string());
  expect(found != names.end(), fmt::format("one of {}", fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

std::int64_t JsonView::integer(std::int64_t limit) const {
  if (value_->is_number_float())
    fail("{}: expected a whole number in the range 0 to {}, found {}", where_, limit - 1,
         shown_json(*value_));
  expect(value_->is_number_integer(), "a whole number");
  const bool negative = !value_->is_number_unsigned() && value_->get<std::int64_t>() < 0;
  const bool fits = !negative && value_->get<std::uint64_t>() < static_cast<std::uint64_t>(limit);
  if (!fits) fail("{}: {} is not in the range 0 to {}", where_, shown_json(*value_), limit - 1);
  return value_->get<std::int64_t>();
}

}  // namespace focus
