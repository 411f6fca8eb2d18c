#pragma once

#include <string>
#include <type_traits>

#include "autograd/weight.h"

// A module is a struct with one list of its members: visit(f) calls f("name", member) for each
// parameter or sub-module. Saving, loading, freezing, counting and optimising all walk it.
namespace focus {

/// Calls f("layers.3.self_attn.q_proj.weight", parameter) for every parameter that is present. An f
/// that takes Variables alone is for models without frozen matrices: at the first of them
/// std::invalid_argument is thrown, naming it. One that takes a const Weight&, or either by auto&,
/// gets them all.
template <class Module, class F>
void for_each_parameter(Module& module, F&& f, const std::string& path = "") {
  if constexpr (std::is_same_v<Module, Variable>) {
    if (module.defined()) f(path, module);
  } else if constexpr (std::is_same_v<Module, Weight>) {
    if (!module.defined()) return;
    if constexpr (std::is_invocable_v<F&, const std::string&, Weight&>)
      f(path, module);
    else
      f(path, module.variable(path));
  } else if constexpr (requires { module.begin(); }) {
    for (std::size_t i = 0; i < module.size(); ++i)
      for_each_parameter(module[i], f, path + "." + std::to_string(i));
  } else if constexpr (requires { module.has_value(); }) {
    if (module) for_each_parameter(*module, f, path);
  } else {
    module.visit([&](const char* name, auto& member) {
      for_each_parameter(member, f, path.empty() ? name : path + "." + name);
    });
  }
}

/// Makes every parameter collect a gradient, or none.
template <class Module>
void set_requires_grad(Module& module, bool wanted) {
  for_each_parameter(module, [=]<class P>(const std::string& name, P& p) {
    if constexpr (std::is_same_v<P, Weight>)
      p.set_requires_grad(wanted, name);
    else
      p.set_requires_grad(wanted);
  });
}

template <class Module>
Index count_parameters(Module& module) {
  Index count = 0;
  for_each_parameter(module,
                     [&](const std::string&, const Weight& p) { count += p.shape().size(); });
  return count;
}

}  // namespace focus
