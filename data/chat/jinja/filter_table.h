#pragma once

#include <map>
#include <string_view>

#include "data/chat/jinja/function.h"

namespace focus::jinja {

using FilterTable = std::map<std::string_view, Function::Body>;

/// The filters that read or make lists: join, map, selectattr and so on.
const FilterTable& sequence_filters();

}  // namespace focus::jinja
