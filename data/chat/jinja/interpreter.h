#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat/jinja/function.h"

namespace focus::jinja {

struct Parts;

/// An expression that has been read: gives its value in a rendering, with its parts.
struct Expression {
  std::function<Value(Interpreter&, const Parts&)> give;
  int line = 1, depth = 1;  // levels of expressions in it
  bool is_call = false;
  std::shared_ptr<const Parts> parts = nullptr;
  Value operator()(Interpreter& in) const;
};

/// Expressions in an expression; the last ones are arguments of these names.
struct Parts {
  std::vector<Expression> all = {};
  std::vector<std::string> names = {};
  Arguments values(Interpreter& in) const;
};

enum class Flow : std::uint8_t { next, break_loop, continue_loop };

struct Statement {
  int line = 0;
  std::function<Flow(Interpreter&)> run;
};
struct Block {
  std::vector<Statement> statements = {};
};

struct Parameter {
  std::string name;
  Expression otherwise;  // the default; may have no `give`
};

/// A macro, or the body of a call block, and the names that its body reads.
struct Macro {
  std::string name;
  std::vector<Parameter> parameters = {};
  Block body = {};
  std::set<std::string, std::less<>> reads = {};
};

/// The statements of a template. Refuses what Jinja does not know and what this program
/// leaves out, by name. `line` is the line that has been reached.
Block parse_template(std::string_view source, int& line);

/// The names that a loop, macro or block binds. Lives as long as that runs.
struct Scope {
  std::shared_ptr<Scope> parent;
  Names names;
};

/// A for loop's `loop`.
struct LoopState {
  std::vector<Value> items;
  std::int64_t index = 0;
  std::optional<std::vector<Value>> last_changed;  // what loop.changed() was last called with
};

/// Executes one template once.
class Interpreter {
 public:
  /// `variables` is a mapping. `now_`: what strftime_now() formats.
  Interpreter(const Limits& limits, const nlohmann::ordered_json& variables, std::tm now_)
      : budget(limits), now(now_), variables_(Value::from_json(budget, variables)) {}
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Budget budget;
  const std::tm now;
  int line = 1;          // that was reached, for errors
  std::string output;    // of the template, or of the block that is captured
  Value captured_text;   // of the block that a filter reads
  TextRanges generated;  // what generation blocks wrote into the template's own output
  /// Whether one wrote into a text that was captured; where `marks` is true it wrote kMarks around
  /// it, since only the whole output tells where that went.
  bool generated_captured = false, marks = false;
  static constexpr std::array<std::string_view, 2> kMarks = {"\uFDD0", "\uFDD1"};
  std::deque<LoopState> loops;
  std::deque<Namespace> spaces;

  /// Notes that a generation block has written what follows `begin` of the output.
  void mark_generated(std::size_t begin);
  /// One level of evaluation.
  Nesting deeper() { return {depth_, kMostEvaluationDepth, "the template calls itself"}; }
  Flow run(const Block& block);
  /// What a block writes.
  Value captured(const Block& block, Flow& flow);
  void put(const Value& value);

  Value name(const std::string& name);
  void set(const std::string& name, Value value) { scope_->names[name] = std::move(value); }
  /// `set ns.member = value`.
  void set_member_of(const std::string& space, const std::string& member, const Value& value);
  /// obj.name and obj[key], as Jinja's sandbox looks them up; undefined where there is nothing.
  Value attribute(const Value& object, const Value& name);
  Value item(const Value& object, const Value& key);

  Value macro(const Macro& macro);
  Value call(const Value& function, const Arguments& arguments);

  /// Binds a scope's names until its end.
  class Open {
   public:
    explicit Open(Interpreter& in) : Open(in, in.scope_) {}
    Open(Interpreter& in, std::shared_ptr<Scope> parent)
        : in_(in),
          before_(std::exchange(in.scope_, std::make_shared<Scope>(Scope{std::move(parent), {}}))) {
    }
    ~Open() { in_.scope_ = std::move(before_); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    Interpreter& in_;
    std::shared_ptr<Scope> before_;
  };

 private:
  const Value* lookup(const std::string& name) const;
  Value call_macro(const Function& function, const Arguments& arguments);
  void bind_parameters(const Macro& macro, const Arguments& arguments);

  Value variables_;
  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  int depth_ = 0, captures_ = 0;
};

}  // namespace focus::jinja
