#pragma once

#include <string_view>
#include <vector>

#include "data/settings/renamed_keys.h"

namespace focus {

/// Keys that stores and adapters written before version 0.1.0 hold: of one section, "focus",
/// "lora" or a mechanism's; and of a whole run.
std::vector<RenamedKey> old_keys(std::string_view section);
std::vector<RenamedKey> old_run_keys();

}  // namespace focus
